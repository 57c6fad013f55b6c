"""Columns of episode ids: interleaved rows are put together, and ids that are missing or rounded are refused."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.datasets.checks import inspect_source


def table(ids, **columns) -> pd.DataFrame:
    """Rows whose observation is their number."""
    rows = len(ids)
    return pd.DataFrame({"obs": np.arange(rows) * 1.0, "action": 0, "reward": 1.0, "episode": ids, **columns})


def steps(dataset: TransitionDataset) -> list[tuple[float, float]]:
    obs, following = (dataset.columns[name][:, 0].tolist() for name in ("obs", "next_obs"))
    return list(zip(obs, following, strict=True))


@pytest.fixture(params=["csv", "parquet", "npz", "hdf5", "frame"])
def load(request, tmp_path):
    def load(frame: pd.DataFrame, **given: Any) -> TransitionDataset:
        path = tmp_path / f"data.{request.param}"
        arrays = {name: frame[name].to_numpy() for name in frame}
        if request.param == "frame":
            return TransitionDataset.from_dataframe(frame, **given)
        if request.param == "npz":
            np.savez(path, **{**arrays, "episode": arrays["episode"].astype(str)})
        elif request.param == "hdf5":
            with h5py.File(path, "w") as file:
                for name, column in arrays.items():
                    file[name] = list(column) if name == "episode" else column
        else:
            (frame.to_csv if request.param == "csv" else frame.to_parquet)(path, index=False)
        return load_transition_dataset(path, columns=given)

    return load


def test_interleaved_episodes_are_put_together_in_recorded_order(load):
    dataset = load(table(["b", "a", "b", "a", "b", "a"], dones=[0, 0, 0, 0, 1, 1]))
    assert steps(dataset) == [(0, 2), (2, 4), (4, 4), (1, 3), (3, 5), (5, 5)]
    assert dataset.episode_offsets.tolist() == [0, 3]
    assert "rows of 2 episodes were not together, and were joined by 'episode'" in "".join(dataset.notes)


def test_an_id_that_returns_after_an_end_is_another_episode(load):
    dataset = load(table(["a", "a", "b", "b", "a", "a"], dones=[0, 1, 0, 1, 0, 1]))
    assert steps(dataset) == [(0, 1), (1, 1), (2, 3), (3, 3), (4, 5), (5, 5)]
    assert (dataset.episode_offsets.tolist(), "not together" in "".join(dataset.notes)) == ([0, 2, 4], False)


# Two logs appended to each other, whose ids and steps both start from 0. Only some episodes have a marked end.
@pytest.mark.parametrize("ends", [{}, {"dones": [0, 0, 1, 0, 0, 0, 0, 0]}])
def test_an_id_that_returns_where_the_steps_start_again_is_another_episode(load, ends):
    dataset = load(table(list("aaabbaab"), step=[0, 1, 2, 0, 1, 0, 1, 0], **ends))
    last = [(2, 2)] if ends else []
    assert steps(dataset) == [(0, 1), (1, 2), *last, (3, 4), (5, 6)]
    assert "not together" not in "".join(dataset.notes)


@pytest.mark.parametrize("counts", [[0, 1, 0, 1, 2, 3, 2, 3], [5, 4, 5, 4, 5, 4, 5, 4]])  # steps go on; other numbers
def test_an_id_that_returns_where_the_steps_go_on_is_the_same_episode(load, counts):
    dataset = load(table(list("aabbaabb"), step=counts))
    assert steps(dataset) == [(0, 1), (1, 4), (4, 5), (2, 3), (3, 6), (6, 7)]
    assert "give each episode its own id if ids are used again" in "".join(dataset.notes)


def test_shuffled_rows_are_refused(load):
    with pytest.raises(ValueError, match="rows with the same 'episode' are not together, and some follow a marked end"):
        load(table(["a", "b", "a", "b", "a"], dones=[0, 0, 1, 1, 0]))


def test_shuffled_rows_are_sorted_by_the_time_that_is_named(load):
    frame = table(list("aabbb"), dones=[0, 1, 0, 0, 1], step=[0, 1, 0, 1, 2]).iloc[[4, 1, 3, 0, 2]]
    dataset = load(frame, time="step")
    assert steps(dataset) == [(2, 3), (3, 4), (4, 4), (0, 1), (1, 1)]
    assert "rows were not in the order of episode and 'step', and were sorted" in dataset.notes


def test_an_id_that_returns_twice_may_go_on_once(load):
    dataset = load(table(["a", "b", "a", "b", "a"], dones=[0, 0, 1, 1, 1], next_obs=[2.0, 3, 7, 8, 9]))
    assert steps(dataset) == [(0, 2), (2, 7), (1, 3), (3, 8), (4, 9)]
    assert dataset.episode_offsets.tolist() == [0, 2, 4]


def test_next_obs_shows_which_rows_follow_each_other(load):
    ids = ["a", "b", "a", "b"]
    together = load(table(ids, next_obs=[2.0, 3, 7, 8]))
    assert (steps(together), together.episode_offsets.tolist()) == ([(0, 2), (2, 7), (1, 3), (3, 8)], [0, 2])
    apart = load(table(ids, next_obs=[5.0, 6, 7, 8]))  # four episodes of one step
    assert apart.episode_offsets.tolist() == [0, 1, 2, 3]


def test_faults_of_joined_rows_have_the_rows_of_the_file(tmp_path):
    frame = table(["a", "b", "a", "b", "a", "b"], dones=[0, 0, 0, 0, 1, 1])
    frame.loc[3, "reward"] = np.nan
    frame.to_csv(tmp_path / "data.csv", index=False)
    assert "the first is row 3;" in inspect_source(tmp_path / "data.csv").findings[0].sentence


def test_two_columns_of_ids_mark_episodes_together(tmp_path):
    frame = table(["p", "p", "p", "q", "q", "q"], visit=[1, 1, 2, 2, 2, 2])
    frame.to_csv(tmp_path / "data.csv", index=False)
    dataset = load_transition_dataset(tmp_path / "data.csv", columns={"episodes": ["episode", "visit"]})
    assert (steps(dataset), dataset.episode_offsets.tolist()) == ([(0, 1), (3, 4), (4, 5)], [0, 1])


@pytest.mark.parametrize("ids", [["a", None, "b", None], [1.0, np.nan, 2.0, np.nan]])
def test_missing_ids_are_refused_with_their_row(tmp_path, ids):
    table(ids).to_csv(tmp_path / "data.csv", index=False)
    sentence = r"data\.csv: column 'episode' has no id in 2 rows, the first is row 1; fill it, or remove these rows"
    with pytest.raises(ValueError, match=sentence):
        load_transition_dataset(tmp_path / "data.csv")
    if isinstance(ids[0], float):
        np.savez(tmp_path / "data.npz", **{name: column.to_numpy() for name, column in table(ids).items()})
        with pytest.raises(ValueError, match="column 'episode' has no id in 2 rows"):
            load_transition_dataset(tmp_path / "data.npz")


def test_ids_that_floats_round_are_refused(tmp_path):
    table([10**19, 10**19 + 1, 10**19 + 2]).to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match="in row 0, and ids of this size are rounded; write them as text"):
        load_transition_dataset(tmp_path / "data.csv")


# Frames shifted by one row have no next observation at the end of an episode.
@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_a_missing_next_obs_of_a_terminal_row_costs_no_row(tmp_path, suffix):
    frame = table([0, 0, 0, 1, 1], dones=[0, 0, 1, 0, 1])
    frame["next_obs"] = frame.groupby("episode").obs.shift(-1)
    if suffix == "csv":
        frame.to_csv(tmp_path / "data.csv", index=False)
    else:
        np.savez(tmp_path / "data.npz", **{name: column.to_numpy() for name, column in frame.items()})
    dataset = load_transition_dataset(tmp_path / f"data.{suffix}")
    assert steps(dataset) == [(0, 1), (1, 2), (2, 2), (3, 4), (4, 4)]
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0, 1]
    assert "next_obs is missing in 2 terminal rows" in "".join(dataset.notes)
    report = inspect_source(tmp_path / f"data.{suffix}")
    assert (report.trainable, report.terminals, report.transitions) == (True, 2, 5)


def test_a_missing_next_obs_of_other_rows_is_still_refused(tmp_path):
    frame = table([0, 0, 0, 1, 1], dones=[0, 0, 0, 0, 1])
    frame["next_obs"] = frame.groupby("episode").obs.shift(-1)
    frame.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match="'next_obs' is NaN or infinite in 1 of 5 rows, the first is row 2"):
        load_transition_dataset(tmp_path / "data.csv")


def test_other_arrays_with_missing_values_cost_no_rows(tmp_path):
    frame = table([0, 0, 0, 1, 1], speed=[1.0, np.nan, 2, 3, 4], place=np.arange(5.0))
    np.savez(tmp_path / "data.npz", **{name: column.to_numpy() for name, column in frame.items()})
    dataset = load_transition_dataset(tmp_path / "data.npz")
    assert (len(dataset), "speed" in dataset.columns, "place" in dataset.columns) == (3, False, True)
    assert "left out, because values are missing: 'speed'" in "".join(dataset.notes)
    with pytest.raises(ValueError, match="column 'speed' is NaN"):
        load_transition_dataset(tmp_path / "data.npz", columns={"speed": "speed"})


def test_whole_numbers_of_which_some_are_missing_are_reported_as_discrete(tmp_path):
    table([0, 0, 0, 1, 1]).assign(action=[3.0, np.nan, 250, 7, 9]).to_csv(tmp_path / "data.csv", index=False)
    text = "the actions are whole numbers of which some are missing, and they are read as Discrete"
    assert text in " ".join(load_transition_dataset(tmp_path / "data.csv", allow=["nan"]).notes)
    assert [each.kind for each in inspect_source(tmp_path / "data.csv").findings if each.text == text] == [
        "whole_actions"
    ]
    boxed = load_transition_dataset(tmp_path / "data.csv", allow=["nan"], action_range=(0, 250))
    assert text not in " ".join(boxed.notes)


def test_integer_actions_of_several_files_are_not_reported(tmp_path):
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path in paths:
        table([0, 0, 0, 1, 1]).to_csv(path, index=False)
    assert not [note for note in load_transition_dataset(paths).notes if "whole numbers" in note]
    assert "whole_actions" not in [each.kind for each in inspect_source(paths).findings]


def test_ids_and_steps_may_be_arrays_of_one_column(tmp_path):
    rows = {name: column.to_numpy() for name, column in table([0, 0, 1, 1, 0, 0], step=[0, 1, 0, 1, 0, 1]).items()}
    np.savez(tmp_path / "data.npz", **rows | {name: rows[name][:, None] for name in ("episode", "step")})
    assert steps(load_transition_dataset(tmp_path / "data.npz")) == [(0, 1), (2, 3), (4, 5)]
    np.savez(tmp_path / "data.npz", **rows | {"episode": rows["episode"][:, None] + 2.0**60})
    with pytest.raises(ValueError, match="in row 0, and ids of this size are rounded"):
        load_transition_dataset(tmp_path / "data.npz")
