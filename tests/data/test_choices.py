"""Several columns of choices as one MultiDiscrete action: in every format, with starts, names and gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
import pandas as pd
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from minari.data_collector import EpisodeBuffer

from rl_training.data import TransitionDataset, load_transition_dataset, save_transition_dataset
from rl_training.data.datasets.actions import unscale_actions
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.spaces import actions_of, batched, entry
from rl_training.envs.creation.making import EnvFactory, spec_of
from rl_training.envs.spaces import describe
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec

DOSE, FAN = [1, 3, 2, 1, 3, 2], [0, 1, 1, 0, 0, 1]
INDICES = [[dose - 1, fan] for dose, fan in zip(DOSE, FAN, strict=True)]
NAMED = {"obs": "temperature", "actions": "dose,fan"}


def frame(**changes: Any) -> pd.DataFrame:
    columns = {"temperature": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "next_obs": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
               "dose": DOSE, "fan": FAN, "reward": [1.0] * 6, "done": [0, 0, 1, 0, 0, 1]}  # fmt: skip
    return pd.DataFrame({**columns, **changes})


def csv(folder: Path, **changes: Any) -> Path:
    frame(**changes).to_csv(folder / "log.csv", index=False)
    return folder / "log.csv"


def arrays(**changes: Any) -> dict[str, Any]:
    columns = {name: column.to_numpy() for name, column in frame(**changes).items()}
    actions = np.stack([columns.pop("dose"), columns.pop("fan")], 1)
    return {"obs": columns.pop("temperature"), "actions": actions, **columns}


def test_columns_of_integers_in_a_csv_are_choices_with_their_own_first_number(tmp_path):
    dataset = load_transition_dataset(csv(tmp_path), columns=NAMED)
    assert dataset.columns["actions"].tolist() == INDICES
    assert dataset.spec == EnvSpec(
        (1,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(1, 0)
    )
    assert dataset.spec.action_columns == ("dose", "fan")
    assert dataset.notes == (
        "the actions are choices in 2 columns: dose, fan; set --action-range LOW,HIGH if they are numbers",
        "the actions in 'dose' are integers from 1, and 0 never occurs: the policy has the actions from 1 on; if there "
        "is an action 0, list all with --categories dose=0,1,2",
    )


def test_the_order_of_the_named_columns_is_that_of_the_choices(tmp_path):
    dataset = load_transition_dataset(csv(tmp_path), columns={**NAMED, "actions": "fan,dose"})
    assert dataset.columns["actions"].tolist() == [pair[::-1] for pair in INDICES]
    assert (dataset.spec.action_sizes, dataset.spec.action_starts) == ((2, 3), (0, 1))


def test_parquet_and_dataframes_are_read_like_csv(tmp_path):
    frame().to_parquet(tmp_path / "log.parquet")
    stored = load_transition_dataset(tmp_path / "log.parquet", columns=NAMED)
    given = TransitionDataset.from_dataframe(frame(), obs="temperature", actions=["dose", "fan"])
    for dataset in (stored, given):
        assert dataset.columns["actions"].tolist() == INDICES
        assert dataset.spec.action_starts == (1, 0)


def test_a_parquet_column_of_lists_holds_choices(tmp_path):
    table = frame().assign(action=[[0, 2], [1, 0], [1, 1], [0, 2], [0, 0], [1, 1]]).drop(columns=["dose", "fan"])
    table.to_parquet(tmp_path / "log.parquet")
    dataset = load_transition_dataset(tmp_path / "log.parquet", columns={"obs": "temperature"})
    assert (dataset.spec.action_kind, dataset.spec.action_sizes) == ("multi_discrete", (2, 3))


def write_npz(path: Path, columns: dict[str, Any]) -> None:
    np.savez(path, **columns)


def write_hdf5(path: Path, columns: dict[str, Any]) -> None:
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file[name] = column


@pytest.mark.parametrize(("suffix", "write"), [(".npz", write_npz), (".hdf5", write_hdf5)])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_arrays_of_integers_with_several_columns_are_choices(tmp_path, suffix, write, dtype):
    actions = np.array([[0, 1], [1, 0], [1, 1], [0, 0], [0, 1], [1, 0]])
    path = tmp_path / f"log{suffix}"
    write(path, {**arrays(), "actions": actions.astype(dtype)})
    dataset = load_transition_dataset(path)
    assert dataset.spec.action_sizes == (2, 2)
    assert dataset.columns["actions"].tolist() == actions.tolist()
    assert str(dataset.columns["actions"].dtype) == "torch.int64"


@pytest.mark.parametrize(("suffix", "write"), [(".npz", write_npz), (".hdf5", write_hdf5)])
def test_arrays_of_one_column_each_are_joined(tmp_path, suffix, write):
    columns = arrays()
    del columns["actions"]
    write(tmp_path / f"log{suffix}", {**columns, "dose": np.array(DOSE), "fan": np.array(FAN)})
    dataset = load_transition_dataset(tmp_path / f"log{suffix}", columns={"actions": "dose,fan"})
    assert dataset.columns["actions"].tolist() == [[dose, fan] for dose, fan in zip(DOSE, FAN, strict=True)]
    assert dataset.spec.action_sizes == (4, 2)  # arrays are numbered from 0, as those of one column


def test_a_table_with_a_range_or_of_a_box_agent_has_box_actions(tmp_path):
    box = EnvSpec((1,), "box", 2, action_shape=(2,), action_low=(0.0, 0.0), action_high=(4.0, 4.0))
    path = csv(tmp_path)
    expected = [[dose / 2 - 1, fan / 2 - 1] for dose, fan in zip(DOSE, FAN, strict=True)]
    for options in ({"action_range": (0.0, 4.0)}, {"spec": box}):
        dataset = load_transition_dataset(path, columns=NAMED, **options)
        assert (dataset.spec.action_kind, dataset.columns["actions"].tolist()) == ("box", expected)
    report = inspect_source(path, columns=NAMED, spec=box)
    assert [each.kind for each in report.findings] == ["constant_rewards"]


def test_other_data_keep_the_first_numbers(tmp_path):
    first = load_transition_dataset(csv(tmp_path), columns=NAMED)
    other = load_transition_dataset(csv(tmp_path, dose=[3, 3, 2, 2, 3, 2]), columns=NAMED, spec=first.spec)
    assert other.columns["actions"][:, 0].tolist() == [2, 2, 1, 1, 2, 1]
    with pytest.raises(
        ValueError, match=r"actions in column 'dose' must be integers from 1 to 3, .*1 of 6 rows .*with 4;"
    ):
        load_transition_dataset(csv(tmp_path, dose=[3, 3, 2, 2, 3, 4]), columns=NAMED, spec=first.spec)


def test_other_data_must_have_the_columns_in_the_order_of_the_agent(tmp_path):
    spec = load_transition_dataset(csv(tmp_path), columns=NAMED).spec
    sentence = "the actions are fan,dose, but those of the agent are dose,fan; name them in this order with --columns a"
    with pytest.raises(ValueError, match=sentence):
        load_transition_dataset(tmp_path / "log.csv", columns={**NAMED, "actions": "fan,dose"}, spec=spec)
    np.savez(tmp_path / "log.npz", **arrays())
    assert load_transition_dataset(tmp_path / "log.npz", spec=spec).columns["actions"].tolist() == INDICES


def test_files_with_other_numbers_and_names_are_read_as_one(tmp_path):
    frame(dose=[1, 2, 1, 2, 1, 2], fan=["low"] * 6).to_csv(tmp_path / "a.csv", index=False)
    frame(dose=[0, 3, 0, 3, 0, 3], fan=["high", "low"] * 3).to_csv(tmp_path / "b.csv", index=False)
    dataset = load_transition_dataset([tmp_path / "a.csv", tmp_path / "b.csv"], columns=NAMED)
    assert (dataset.spec.action_sizes, dataset.spec.action_starts) == ((4, 2), (0, 0))
    assert dataset.columns["actions"][[0, 1, 6, 7]].tolist() == [[1, 1], [2, 1], [0, 0], [3, 1]]


def test_text_columns_are_categories_of_their_choice(tmp_path):
    words = ["low", "high", "low", "low", "high", "low"]
    dataset = load_transition_dataset(csv(tmp_path, fan=words), columns=NAMED)
    assert dataset.columns["actions"][:, 0].tolist() == [dose - 1 for dose in DOSE]
    assert dataset.columns["actions"][:, 1].tolist() == [int(word == "low") for word in words]
    assert dataset.spec.categories == {"fan": ["high", "low"]}
    listed = {"fan": ["off", "low", "high", "full"], "dose": [0, 1, 2, 3]}
    dataset = load_transition_dataset(tmp_path / "log.csv", columns=NAMED, categories=listed)
    assert (dataset.spec.action_sizes, dataset.spec.action_starts) == ((4, 4), (0, 0))
    assert dataset.columns["actions"][:, 0].tolist() == DOSE
    assert dataset.columns["actions"][:, 1].tolist() == [1 + (word == "high") for word in words]


def test_a_category_beside_numbers_is_refused(tmp_path):
    path = csv(tmp_path, fan=["low"] * 5 + ["high"], dose=[0.5, 1, 2, 3, 1, 2])
    with pytest.raises(ValueError, match="column 'fan' is a category, but the actions dose, fan have numbers"):
        load_transition_dataset(path, columns=NAMED)
    with pytest.raises(ValueError, match="action_range is for numbers, but 'fan' is a category"):
        load_transition_dataset(csv(tmp_path, fan=["low"] * 5 + ["high"]), columns=NAMED, action_range=(0.0, 3.0))


def test_rows_with_a_missing_choice_are_dropped_where_allowed(tmp_path):
    path = csv(tmp_path, fan=[0, 1, None, 0, 0, 1])
    with pytest.raises(ValueError, match=r"'actions' \(fan\) is NaN or infinite in 1 of 6 rows"):
        load_transition_dataset(path, columns=NAMED)
    dataset = load_transition_dataset(path, columns=NAMED, allow=["nan"])
    assert dataset.columns["actions"].tolist() == [*INDICES[:2], *INDICES[3:]]
    assert any("some are missing, and they are read as MultiDiscrete" in note for note in dataset.notes)


@pytest.mark.parametrize("name", ["data.npz", "data.parquet", "data-v0"])
def test_written_choices_are_read_back_in_the_numbers_of_the_environment(tmp_path, name):
    dataset = roll_dataset("Levers-v0", rows=60)
    save_transition_dataset(dataset, tmp_path / name)
    back = load_transition_dataset(tmp_path / name)
    assert back.spec == dataset.spec
    assert back.columns["actions"].equal(dataset.columns["actions"])


CHOICES = {
    "multi_binary": spaces.MultiBinary((2, 2)),
    "integers": spaces.Box(-1, 2, (2,), np.int32),
    "dict": spaces.Dict(b=spaces.Discrete(3, start=2), a=spaces.MultiBinary(2)),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([3, 2], start=[1, 0])]),
    "single": spaces.Dict(only=spaces.Discrete(4, start=2)),
}


class Chosen(gym.Env[Any, Any]):
    """Takes actions of a space of choices."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(size=2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        return self.np_random.uniform(size=2).astype(np.float32), 1.0, bool(self.np_random.integers(4) == 0), False, {}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.filterwarnings("ignore:.*None:UserWarning")
def test_minari_has_choices_in_the_form_of_the_environment(tmp_path, monkeypatch, name):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = roll_dataset(lambda: Chosen(CHOICES[name]), rows=40)
    save_transition_dataset(dataset, tmp_path / "own-v0")
    back = load_transition_dataset("own-v0")
    assert back.columns["actions"].equal(dataset.columns["actions"])
    assert back.spec == dataset.spec
    for each in minari.load_dataset("own-v0"):
        assert all(entry(each.actions, step) in CHOICES[name] for step in range(len(each)))


def test_integers_of_a_box_with_a_range_are_numbers(tmp_path):
    dataset = roll_dataset(lambda: Chosen(CHOICES["integers"]), rows=40)
    save_transition_dataset(dataset, tmp_path / "own-v0")
    numbers = load_transition_dataset(tmp_path / "own-v0", action_range=(-1, 2))
    assert (numbers.spec.action_kind, numbers.spec.action_low, numbers.spec.action_high) == ("box", (-1, -1), (2, 2))
    torch.testing.assert_close(numbers.columns["actions"], dataset.columns["actions"] / 1.5 - 1)
    report = inspect_source(tmp_path / "own-v0", action_range=(-1, 2))
    assert report.trainable


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
@pytest.mark.filterwarnings("ignore:.*None:UserWarning")
def test_choices_that_minari_has_recorded_fit_the_environment(tmp_path, monkeypatch, name, data_format):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space = CHOICES[name]
    space.seed(0)
    taken = [space.sample() for _ in range(6)]
    buffers = [
        EpisodeBuffer(
            observations=np.ones((4, 2), np.float32), actions=batched(taken[start : start + 3], describe(space)),
            rewards=np.zeros(3), terminations=[False, False, True], truncations=[False] * 3, infos={},
        )
        for start in (0, 3)
    ]  # fmt: skip
    minari.create_dataset_from_buffers(
        "theirs-v0", buffers, observation_space=Chosen.observation_space, action_space=space, data_format=data_format
    )
    spec = spec_of(EnvFactory(lambda: Chosen(space)))
    found, known = (load_transition_dataset("theirs-v0", spec=each) for each in (None, spec))
    assert (found.spec.action_kind, found.spec.choice_sizes) == (spec.action_kind, spec.choice_sizes)
    assert found.columns["actions"].equal(known.columns["actions"])
    converter = actions_of(spec)
    assert converter is not None
    rows = unscale_actions(known.columns["actions"], spec).reshape(6, -1).numpy()
    assert all(data_equivalence(converter.own(row), action) for row, action in zip(rows, taken, strict=True))


@pytest.mark.parametrize(("names", "found"), [(lambda row: row, True), (lambda row: f"offer {row}", False)])
def test_many_integers_may_be_amounts_and_many_names_may_not(tmp_path, names, found):
    rows = range(25)
    table = pd.DataFrame({"obs": rows, "action": map(names, rows), "reward": 1.0, "done": 1, "truncated": 0})
    table.to_csv(tmp_path / "log.csv", index=False)
    assert ("whole_actions" in [each.kind for each in inspect_source(str(tmp_path / "log.csv")).findings]) == found
