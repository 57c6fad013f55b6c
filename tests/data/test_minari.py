"""Minari's datasets, written and read by the package itself on the other side."""

import json
from dataclasses import replace
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
import torch
from minari.data_collector import EpisodeBuffer

from rl_training.data import TransitionDataset, load_transition_dataset, read_columns, save_minari
from rl_training.data.spaces import entry
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec

pytestmark = pytest.mark.filterwarnings("ignore:.*None:UserWarning")  # of an author, a description and so on
WIDE = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-3.0,), action_high=(3.0,))
OBS = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
TORQUE = gym.spaces.Box(-2, 2, (1,), np.float32)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def episode(start: float, steps: int, *, terminated: bool) -> EpisodeBuffer:
    """Observations start, start + 1, ...; rewards and actions count the steps."""
    ends = [step == steps - 1 for step in range(steps)]
    return EpisodeBuffer(
        observations=np.stack([np.full(2, start + step, np.float32) for step in range(steps + 1)]),
        actions=np.arange(steps, dtype=np.float32)[:, None] % 2,
        rewards=np.arange(steps, dtype=np.float64),
        terminations=[terminated and end for end in ends],
        truncations=[not terminated and end for end in ends],
        infos={},
    )


@pytest.fixture(params=["hdf5", "arrow", "parquet"])
def written(request, root):
    minari.create_dataset_from_buffers(
        "mine/counted-v0", [episode(0, 3, terminated=True), episode(10, 2, terminated=False)],
        observation_space=OBS, action_space=TORQUE, data_format=request.param,
    )  # fmt: skip
    return root / "mine" / "counted-v0"


def test_observations_are_paired_within_each_episode(written):
    columns = load_transition_dataset(written).columns
    assert columns["obs"][:, 0].tolist() == [0, 1, 2, 10, 11]
    assert columns["next_obs"][:, 0].tolist() == [1, 2, 3, 11, 12]
    assert columns["rewards"].tolist() == [0, 1, 2, 0, 1]
    assert columns["dones"].tolist() == [0, 0, 1, 0, 0]
    assert columns["truncated"].tolist() == [0, 0, 0, 0, 1]
    assert columns["actions"].tolist() == [[0], [0.5], [0], [0], [0.5]]  # the space reaches to 2


def test_a_dataset_is_found_by_its_id_its_folder_or_its_data(written):
    fingerprints = {
        load_transition_dataset(each).fingerprint() for each in ("mine/counted-v0", written, written / "data")
    }
    assert len(fingerprints) == 1


def test_the_spaces_come_with_the_data(written):
    stored = read_columns(written)
    assert stored.spec == EnvSpec((2,), "box", 1, "float32", (1,), (-2.0,), (2.0,))
    assert stored.names["dones"] == "terminations"
    assert stored.rows == 5


def test_an_id_that_is_not_there_is_one_sentence(root):
    sentence = rf"^dataset file D4RL/door/human-v2 not found, nor a Minari dataset in {root}; `minari download D4RL/"
    with pytest.raises(FileNotFoundError, match=sentence):
        load_transition_dataset("D4RL/door/human-v2")


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_a_part_of_dict_observations_is_chosen_by_its_path(root, data_format):
    space = gym.spaces.Dict({"goal": OBS, "place": OBS})
    plain = episode(0, 2, terminated=True)
    both = {"goal": np.ones((3, 2), np.float32), "place": plain.observations}
    buffer = replace(plain, observations=both)
    minari.create_dataset_from_buffers(
        "maze-v0", [buffer], observation_space=space, action_space=TORQUE, data_format=data_format
    )
    assert load_transition_dataset("maze-v0").columns["obs"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]  # all, by name
    columns = {"obs": "observations/place,observations/goal"}
    rows = load_transition_dataset("maze-v0", columns=columns).columns
    assert rows["obs"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert rows["next_obs"].tolist() == [[1, 1, 1, 1], [2, 2, 1, 1]]


SPACES = {
    "discrete": gym.spaces.Discrete(4, start=3),
    "matrix": gym.spaces.Box(-1, 1, (2, 2), np.float64),
    "image": gym.spaces.Box(0, 255, (6, 6, 3), np.uint8),
    "tuple": gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.MultiBinary(2)]),
    "dict": gym.spaces.Dict(
        b=gym.spaces.MultiDiscrete([2, 3]), a=gym.spaces.Dict(x=OBS, n=gym.spaces.Box(-5, 5, (1,), np.int64))
    ),
}


class Sampled(gym.Env[Any, Any]):
    """Observations are sampled from their space."""

    def __init__(self, space: gym.spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, bool(self.np_random.integers(4) == 0), False, {}


@pytest.mark.parametrize("name", SPACES)
def test_observations_are_written_in_the_form_of_the_environment(root, name):
    dataset = roll_dataset(lambda: Sampled(SPACES[name]), rows=40)
    save_minari(dataset, root / "own-v0")
    back = load_transition_dataset("own-v0")
    assert all(torch.equal(back.columns[column], dataset.columns[column]) for column in ("obs", "next_obs", "actions"))
    assert back.spec == dataset.spec
    theirs = minari.load_dataset("own-v0")
    for each in theirs:
        for step in range(len(each) + 1):
            assert entry(each.observations, step) in SPACES[name]


def test_discrete_actions_keep_where_they_start(root):
    plain = episode(0, 3, terminated=True)
    buffer = replace(plain, actions=np.array([1, 3, 2]))
    minari.create_dataset_from_buffers(
        "buttons-v0", [buffer], observation_space=OBS, action_space=gym.spaces.Discrete(3, start=1)
    )
    dataset = load_transition_dataset("buttons-v0")
    assert dataset.columns["actions"].tolist() == [0, 2, 1]
    assert (dataset.spec.action_dim, dataset.spec.action_start) == (3, 1)


def test_lossy_pictures_are_rejected(root):
    space = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
    plain = episode(0, 2, terminated=True)
    buffer = replace(plain, observations=np.zeros((3, 32, 32, 3), np.uint8))
    minari.create_dataset_from_buffers("film-v0", [buffer], observation_space=space, action_space=TORQUE)
    with pytest.raises(ValueError, match="stores observations as JPEG images"):
        load_transition_dataset("film-v0")


def test_what_is_written_here_minari_reads(root, counted):
    values = {**counted([1, 2, 3], dones=(1,)), "actions": np.array([[-3.0], [0.75], [1.5]])}
    save_minari(TransitionDataset.from_dict(values, spec=WIDE), root / "mine" / "own-v1", env_id="Pendulum-v1")
    theirs = minari.load_dataset("mine/own-v1")
    first, second = theirs
    assert (theirs.total_steps, len(theirs)) == (3, 2)
    assert theirs.env_spec.id == "Pendulum-v1"
    assert theirs.action_space == gym.spaces.Box(-3, 3, (1,), np.float32)
    assert first.observations.tolist() == [[0], [1], [2]]
    assert first.actions.tolist() == [[-3.0], [0.75]]
    assert (first.terminations.tolist(), first.truncations.tolist()) == ([False, True], [False, False])
    assert (second.terminations.tolist(), second.truncations.tolist()) == ([False], [True])  # the recording ends
    assert "mine/own-v1" in minari.list_local_datasets()


def test_every_column_comes_back_from_what_is_written_here(root, counted):
    values = counted([1, 2, 3], dones=(1,), truncated=(2,)) | {
        "next_actions": [[1.0], [2.0], [3.0]],
        "weights": [7, 8, 9],
    }
    dataset = TransitionDataset.from_dict(values, spec=WIDE).with_discounted_returns_to_go(0.9)
    save_minari(dataset, root / "own-v1")
    back = load_transition_dataset("own-v1")
    assert back.columns.keys() == dataset.columns.keys()
    assert all(torch.equal(back.columns[name], column) for name, column in dataset.columns.items())
    assert back.spec == WIDE


def test_rows_that_lead_elsewhere_begin_another_episode(root, counted):
    values = {**counted([1, 2], dones=(1,)), "next_obs": np.array([[5.0], [6.0]])}
    save_minari(TransitionDataset.from_dict(values), root / "jumpy-v0")
    assert [len(each) for each in minari.load_dataset("jumpy-v0")] == [1, 1]


@pytest.mark.parametrize(("folder", "name"), [("own-v1", "own-v1"), ("own", "own-v0"), ("a/b-v2", "a/b-v2")])
def test_the_id_follows_from_the_folder(root, counted, folder, name):
    save_minari(TransitionDataset.from_dict(counted([1], dones=(0,))), root / folder)
    assert json.loads((root / folder / "data" / "metadata.json").read_text())["dataset_id"] == name


def test_a_folder_that_exists_and_a_wrong_id_are_rejected(root, counted):
    dataset = TransitionDataset.from_dict(counted([1], dones=(0,)))
    with pytest.raises(ValueError, match="dataset_id must be NAME-vN"):
        save_minari(dataset, root / "own", dataset_id="own")
    save_minari(dataset, root / "own")
    with pytest.raises(FileExistsError, match="name a new directory for the Minari dataset"):
        save_minari(dataset, root / "own")


def test_an_id_may_have_the_prefix_of_minari(written):
    assert load_transition_dataset("minari:mine/counted-v0").fingerprint() == (
        load_transition_dataset("mine/counted-v0").fingerprint()
    )


def test_a_misspelt_id_gets_the_nearest_of_this_machine(written):
    with pytest.raises(FileNotFoundError, match=r"; did you mean mine/counted-v0\?$"):
        load_transition_dataset("mine/counted-v1")
