"""`TransitionDataset.from_dataframe` reads pandas and polars frames like a CSV file."""

import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from rl_training import TransitionDataset
from rl_training.data import load_transition_dataset
from rl_training.data.datasets.checks import inspect_source

COLUMNS: dict[str, list[Any]] = {
    "run": ["a", "a", "a", "b", "b"],
    "when": ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-01", "2026-01-02"],
    "level": [1.0, 2.0, 3.0, 4.0, 5.0],
    "site": ["north", "north", "north", "south", "south"],
    "act": ["up", "down", "up", "up", None],
    "reward": [1, 2, 3, 4, 5],
    "done": [False, False, True, False, False],
}


def frames():
    as_pandas = pd.DataFrame(COLUMNS).assign(when=lambda frame: pd.to_datetime(frame["when"]))
    as_polars = pl.DataFrame(COLUMNS).with_columns(pl.col("when").str.to_datetime())
    return {"pandas": as_pandas, "polars": as_polars, "categorical": as_pandas.astype({"act": "category"}),
            "strings": as_pandas.astype({"act": "string"}),
            "zoned": as_pandas.assign(when=as_pandas["when"].dt.tz_localize("Europe/Berlin"))}  # fmt: skip


@pytest.mark.parametrize("kind", frames())
def test_a_frame_becomes_transitions(kind):
    dataset = TransitionDataset.from_dataframe(
        frames()[kind], obs=["level", "site"], actions="act", episode="run", time="when", categories=["site"],
        allow=["nan"],
    )  # fmt: skip
    assert dataset.columns["obs"].tolist() == [[1, 1, 0], [2, 1, 0], [3, 1, 0], [4, 0, 1]]
    assert dataset.columns["actions"].tolist() == [1, 0, 1, 1]
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0]
    assert dataset.spec.obs_names == ("level", "site=north", "site=south")
    assert dataset.spec.categories == {"actions": ["down", "up"], "site": ["north", "south"]}
    assert "1 row is left out, because no next observation is known: row 4" in dataset.notes


def test_a_frame_and_its_csv_file_give_equal_datasets(tmp_path):
    frame = pd.DataFrame({"obs_0": [1.5, 2.5], "obs_1": [0.5, 0.25], "action": [0, 1], "reward": [1.0, 2.0],
                          "terminated": [False, True], "truncated": [False, False]})  # fmt: skip
    frame.to_csv(tmp_path / "log.csv", index=False)
    own, stored = TransitionDataset.from_dataframe(frame), load_transition_dataset(tmp_path / "log.csv")
    assert own.fingerprint() == stored.fingerprint()
    assert own.spec == stored.spec


def test_integers_from_1_with_a_range_are_box_actions_that_keep_their_values(tmp_path):
    frame = pd.DataFrame({"obs": [0.0, 1.0, 2.0], "action": [1, 2, 3], "reward": [1, 2, 3], "done": [0, 0, 1],
                          "timeout": [0, 0, 0]})  # fmt: skip
    frame.to_csv(file := tmp_path / "doses.csv", index=False)
    own, stored = (read(each, action_range=(0, 4)) for read, each in (
        (TransitionDataset.from_dataframe, frame), (load_transition_dataset, file)))  # fmt: skip
    for dataset in (own, stored):
        assert dataset.columns["actions"].tolist() == [[-0.5], [0.0], [0.5]]
        assert dataset.spec.action_start == 0
    (found,) = inspect_source(file, action_range=(2, 4)).findings
    assert "outside their bounds in 1 of 3 rows; the farthest is row 0 with 1, allowed is 2 to 4" in found.sentence
    assert load_transition_dataset(file).spec.action_start == 1  # without a range they are Discrete


def test_numbers_that_pandas_stores_as_nullable_are_numbers():
    frame = pd.DataFrame({"obs": pd.array([1, None, 3], dtype="Int64"), "action": [0, 1, 0], "reward": [1, 1, 1],
                          "timeout": [False, True, False]})  # fmt: skip
    with pytest.raises(ValueError, match="drop these rows with --allow nan"):
        TransitionDataset.from_dataframe(frame)


@pytest.mark.parametrize("actions", [[True, False, True], [1, 0, 1], [np.int8(1), np.int8(0), np.int8(1)]])
def test_objects_that_are_all_integers_or_booleans_are_choices(actions):
    """As `dropna` leaves them where pandas has read a column with a missing value."""
    frame = pd.DataFrame({"obs": [1.0, 2.0, 3.0, 4.0], "action": pd.Series([None, *actions], dtype=object),
                          "reward": [0.0, 1.0, 2.0, 3.0], "terminated": [False, False, True, True]})  # fmt: skip
    whole = TransitionDataset.from_dataframe(frame.dropna(), truncated="terminated")
    assert (whole.spec.action_kind, whole.columns["actions"].tolist()) == ("discrete", [1, 0, 1])
    with_gap = TransitionDataset.from_dataframe(frame, truncated="terminated", allow=["nan"])
    assert with_gap.columns["actions"].tolist() == [1, 0, 1]


def test_the_package_imports_neither_pandas_nor_polars():
    code = "import sys; from rl_training import TransitionDataset; print({'pandas', 'polars'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_a_frame_without_a_needed_column_is_refused():
    with pytest.raises(ValueError, match=r"the frame has no column actions .* such as actions=u"):
        TransitionDataset.from_dataframe(pd.DataFrame({"obs": [1, 2], "u": [0, 1], "reward": [1, 1]}))


def test_text_timestamps_are_recognised_as_in_a_csv_file(tmp_path):
    """The same table as CSV, Parquet and DataFrame, with rows of two runs mixed."""
    rows = {name: [column[row] for row in (0, 3, 1, 4, 2)] for name, column in COLUMNS.items()}
    frame = pd.DataFrame(rows).drop(columns="act").assign(action=[0, 1, 0, 1, 0])
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.to_parquet(tmp_path / "log.parquet")
    options = {"obs": "level", "episodes": "run"}
    read = [load_transition_dataset(tmp_path / f"log.{kind}", columns=options) for kind in ("csv", "parquet")]
    read += [
        TransitionDataset.from_dataframe(each, obs="level", episode="run")
        for each in (frame, pl.DataFrame(rows).drop("act").with_columns(action=pl.Series([0, 1, 0, 1, 0])))
    ]
    for dataset in read:
        assert dataset.columns["obs"].flatten().tolist() == [1, 2, 3, 4]
        assert dataset.columns["when"].tolist() == [0, 86_400, 172_800, 0]
        assert "'when' is the time of the rows, for their order and gaps; it is not part of obs" in dataset.notes
    assert "when" not in load_transition_dataset(tmp_path / "log.parquet", columns=options, text_times=False).columns


def test_a_text_column_of_ids_is_kept_for_a_split_by_group():
    frame = pd.DataFrame({**COLUMNS, "patient": ["zoe", "zoe", "zoe", "ada", "ada"]})
    options: dict[str, Any] = {"obs": "level", "actions": "act", "episode": "run", "allow": ["nan"]}
    dataset = TransitionDataset.from_dataframe(frame, **options, ids=["patient"])
    train, test = dataset.split(0.5, by="group", column="patient")
    assert {*train.columns["patient"].tolist()} | {*test.columns["patient"].tolist()} == {0, 1}
    with pytest.raises(ValueError, match=r"no column 'patient'; .* kept if you load them with ids=\['patient'\]"):
        TransitionDataset.from_dataframe(frame, **options).split(0.5, by="group", column="patient")
    with pytest.raises(ValueError, match=r"no column 'patent' to keep as ids; .*; did you mean 'patient'\?"):
        TransitionDataset.from_dataframe(frame, **options, ids=["patent"])


def vectors() -> pd.DataFrame:
    """Six rows with a vector in each cell of `position`, and decimal numbers in `cost`, as databases export them."""
    rows = {
        "position": [[float(row), -float(row)] for row in range(6)],
        "cost": [Decimal(f"{row}.5") for row in range(6)],
    }
    return pd.DataFrame({**rows, "action": [0, 1] * 3, "done": [0, 0, 1] * 2, "truncated": 0})


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet"])
def test_lists_of_numbers_are_vectors_and_decimals_are_numbers(kind, tmp_path):
    names: dict[str, Any] = {"obs": ["position", "cost"], "rewards": "cost"}
    if kind == "parquet":
        vectors().to_parquet(tmp_path / "vectors.parquet")
        dataset = load_transition_dataset(tmp_path / "vectors.parquet", columns=names)
    else:
        frame = vectors() if kind == "pandas" else pl.from_pandas(vectors())
        dataset = TransitionDataset.from_dataframe(frame, obs=names["obs"], rewards="cost")
    assert dataset.columns["obs"][:3].tolist() == [[0, 0, 0.5], [1, -1, 1.5], [2, -2, 2.5]]
    assert dataset.columns["rewards"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]


def test_lists_of_different_lengths_are_refused_only_if_they_are_used():
    frame = vectors().assign(tags=[["a"] * row for row in range(6)])
    TransitionDataset.from_dataframe(frame, obs="position", rewards="cost")
    with pytest.raises(ValueError, match="column 'tags' has lists of different lengths"):
        TransitionDataset.from_dataframe(frame, obs="tags", rewards="cost")


def test_durations_count_in_seconds():
    frame = vectors().assign(wait=pd.to_timedelta([1, 2, 3, 4, 5, 6], unit="min"))
    dataset = TransitionDataset.from_dataframe(frame, obs="wait", rewards="cost")
    assert dataset.columns["obs"].flatten().tolist() == [60, 120, 180, 240, 300, 360]


def rows_of(**changed) -> pd.DataFrame:
    columns = {"episode": [0] * 3 + [1] * 3, "obs": np.arange(6.0), "action": [0, 1, 0] * 2, "reward": 1.0}
    return pd.DataFrame({**columns, "done": [0, 0, 1] * 2, **changed})


def test_ids_and_categories_may_be_tuples():
    ids = TransitionDataset.from_dataframe(rows_of(episode=[("a", 1)] * 3 + [("a", 2)] * 3))
    assert ids.columns["dones"].tolist() == [0, 0, 1] * 2
    choices = rows_of(action=[(0, 1), (1, 0), (0, 1)] * 2)
    named = TransitionDataset.from_dataframe(choices, categories={"actions": []})
    assert named.notes[0] == "actions 0 to 1 are (0, 1), (1, 0)"


def test_decimals_may_stand_beside_other_numbers():
    dataset = TransitionDataset.from_dataframe(rows_of(reward=[Decimal("1.5"), 0, 2.5] * 2))
    assert dataset.columns["rewards"].tolist() == [1.5, 0, 2.5] * 2


def test_a_missing_list_is_a_missing_vector():
    dataset = TransitionDataset.from_dataframe(rows_of(action=[[0.5, 0.1], [0.2, 0.3], None] * 2))
    assert dataset.columns["actions"].shape == (4, 2)
    assert dataset.columns["dones"].tolist() == [0, 1] * 2


@pytest.mark.parametrize("cells", [[[1], [1, 2]], [[[1], [1, 2]]] * 2])
def test_ragged_lists_are_refused_with_their_column(cells):
    with pytest.raises(ValueError, match="column 'obs' has lists of different lengths"):
        TransitionDataset.from_dataframe(rows_of(obs=cells * 3))


def test_objects_that_are_not_numbers_are_refused_with_their_row():
    with pytest.raises(TypeError, match="column 'reward' must hold numbers, but row 1 holds 'a'"):
        TransitionDataset.from_dataframe(rows_of(reward=[1.0, "a", Decimal("2.5")] * 2))


@pytest.mark.parametrize("rewards", [0, 0.5, "0.5"])
def test_one_number_may_be_every_reward(rewards):
    dataset = TransitionDataset.from_dataframe(rows_of().drop(columns="reward"), rewards=rewards)
    assert dataset.columns["rewards"].tolist() == [float(rewards)] * 6


def test_other_columns_of_decimals_are_kept(tmp_path):
    probabilities = [Decimal(f"0.{digit}") for digit in range(1, 7)]
    frame = rows_of(action_prob=probabilities)
    frame.to_parquet(tmp_path / "log.parquet")
    for dataset in (TransitionDataset.from_dataframe(frame), load_transition_dataset(tmp_path / "log.parquet")):
        assert dataset.columns["action_prob"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
