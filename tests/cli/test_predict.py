"""`predict` from a run or a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces


def test_a_folder_of_observations_is_called_one(cli, tmp_path):
    result = cli("predict", tmp_path, "--obs-file", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"error: --obs-file: {tmp_path} is a directory; name a file in it\n"


@pytest.mark.parametrize(
    ("obs", "shape"), [("[0, 0, 0, 0]", ()), ("[[0, 0, 0, 0], [1, 1, 1, 1]]", (2,)), ("[[[0, 0, 0, 0]]]", (1, 1))]
)
def test_predict_keeps_the_leading_shape(cli, finished, obs, shape):
    actions = json.loads(cli("predict", finished["run_dir"], "--obs", obs, "--json").stdout)["actions"]
    assert np.shape(actions) == shape
    assert set(np.ravel(actions).tolist()) <= {0, 1}
    assert np.asarray(actions).dtype.kind == "i"


def test_predict_from_a_file_in_the_environments_own_units(cli, pendulum, tmp_path):
    np.save(tmp_path / "obs.npy", np.zeros((2, 5, 3)))
    printed = cli("predict", pendulum, "--obs-file", tmp_path / "obs.npy", "--json").stdout
    actions = np.asarray(json.loads(printed)["actions"])
    assert actions.shape == (2, 5, 1)
    assert np.abs(actions).max() <= 2  # Pendulum's torque


def test_predictions_repeat_unless_they_are_stochastic(cli, pendulum):
    command = ["predict", pendulum, "--obs", str([[0.5, 0.5, 0]] * 20)]  # a single draw may be clipped twice
    assert cli(*command).stdout == cli(*command).stdout
    assert cli(*command, "--stochastic").stdout != cli(*command, "--stochastic").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "observations are missing or given twice: use either --obs JSON or --obs-file FILE.npy"),
        (
            ["--obs", "[0]", "--obs-file", "x.npy"],
            "observations are missing or given twice: use either --obs JSON or --obs-file FILE.npy",
        ),
        (["--obs", "[0, 0, 0]"], "obs must end in shape (4,), got (3,)"),
        (["--obs", "[[0, 0], [0, 0]]"], "obs must end in shape (4,), got (2, 2)"),
        (["--obs", "[NaN, 0, 0, 0]"], "obs holds NaN or infinite values"),
        (["--obs", '["0", 0, 0, 0]'], "--obs must be an array of numbers, got text"),
        (["--obs", "[null, 0, 0, 0]"], "--obs must be an array of numbers, got null or objects"),
        (
            ["--obs", "[[0, 0], [0]]"],
            "--obs must have observations of one length, such as [[0.1, 0], [0.2, 0]]",
        ),
        (
            ["--obs", "[0, 0, 0, 0]", "--episode"],
            "--episode takes a list of observations, got a single one: put it in brackets",
        ),
        (
            ["--obs", '{"a": [0, 0, 0, 0]}'],
            "obs must be an array that ends in shape (4,), got a dict of ['a']",
        ),
        (["--obs-file", "absent.npy"], "--obs-file: absent.npy not found"),
    ],
)
def test_a_wrong_observation_is_refused_in_one_sentence(cli, finished, arguments, message):
    result = cli("predict", finished["run_dir"], *arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("obs", ["absent.npz", __file__])
def test_a_file_in_place_of_json_is_answered_with_the_option_for_files(cli, finished, obs):
    result = cli("predict", finished["run_dir"], "--obs", obs)
    assert result.exit_code == 2
    assert result.stderr.endswith("; use --obs-file for a file\n")


@pytest.mark.parametrize(
    ("obs", "shown"), [("", "''"), ("0.1, 0.2", "'0.1, 0.2'"), ("[" * 100_000, "'[[[[[[[[[[[[...[[[[[[[[[[[[['")]
)
def test_what_is_no_json_array_is_refused(cli, finished, obs, shown):
    result = cli("predict", finished["run_dir"], "--obs", obs)
    sentence = f"error: --obs must be JSON, such as [0.1, 0, 0.2, 0], got {shown}\n"
    assert (result.exit_code, result.stderr) == (2, sentence)


@pytest.mark.parametrize("content", [b"", b"no array", b"\x80\x04\x95"])
def test_a_file_that_numpy_did_not_write_is_refused(cli, finished, tmp_path, content):
    (tmp_path / "obs.npy").write_bytes(content)
    result = cli("predict", finished["run_dir"], "--obs-file", tmp_path / "obs.npy")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --obs-file: {tmp_path}/obs.npy is not a numeric array written by np.save")


def test_an_array_of_objects_is_not_unpickled(cli, finished, tmp_path):
    np.save(tmp_path / "obs.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    assert cli("predict", finished["run_dir"], "--obs-file", tmp_path / "obs.npy").exit_code == 2


def test_predict_takes_a_dict_of_observations_as_objects_or_from_a_file(cli, train_tiny_dreamer, tmp_path):
    train_tiny_dreamer(tmp_path / "run", "SignedSide-v0")
    side = np.zeros((2, 1, 16, 16), np.uint8)
    np.savez(tmp_path / "obs.npz", side=side, sign=np.ones((2, 1)))
    objects = json.dumps([{"side": each.tolist(), "sign": [1]} for each in side])
    asked = [("--obs", objects), ("--obs", objects, "--episode"), ("--obs-file", tmp_path / "obs.npz")]
    assert [len(json.loads(cli("predict", tmp_path / "run", *each).stdout)) for each in asked] == [2, 2, 2]
    single = cli("predict", tmp_path / "run", "--episode", "--obs", json.dumps(json.loads(objects)[0]))
    assert "got a single one: put it in brackets" in single.stderr
    other = cli("predict", tmp_path / "run", "--obs", '{"sign": [1]}')
    assert other.stderr == "error: obs must be a dict of side, sign, got ['sign']\n"


def test_predict_goes_through_an_episode_step_by_step(cli, finished):
    rows = "[[0.1, 0, 0.2, 0], [0, 0, -0.2, 0], [0, 1, 0, 1]]"
    asked = ("predict", finished["run_dir"], "--obs", rows)
    assert cli(*asked, "--episode").stdout == cli(*asked).stdout  # who goes by what it sees is the same in any order


class Cards(gym.Env[Any, Any]):
    """Tuple observations with a nested Dict, and Dict actions."""

    observation_space = spaces.Tuple([spaces.Discrete(5), spaces.Dict(x=spaces.Box(-1, 1, (2,), np.float64))])
    action_space = spaces.Dict(turn=spaces.Discrete(3, start=1), keep=spaces.MultiBinary(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return (2, {"x": np.zeros(2)}), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        return (1, {"x": np.ones(2)}), 1.0, True, False, {}


@pytest.fixture(scope="module")
def cards(cli, tmp_path_factory) -> Path:
    gym.register("Cards-v0", lambda **_: Cards())
    run = tmp_path_factory.mktemp("cards") / "run"
    trained = cli("train", "ppo", "Cards-v0", "--steps", "16", "--set", "num_steps=8", "--set", "batch_size=8",
                  "--set", "hidden_sizes=[8]", "--set", f"output_dir={run}")  # fmt: skip
    assert trained.exit_code == 0, trained.stderr
    return run


def test_observations_and_actions_have_the_form_of_the_environment(cli, cards, tmp_path):
    one, two = [1, {"x": [0, 1]}], [4, {"x": [1, 0]}]
    action = json.loads(cli("predict", cards, "--obs", json.dumps(one)).stdout)
    assert action["turn"] in (1, 2, 3)
    assert len(action["keep"]) == 2
    both = json.loads(cli("predict", cards, "--obs", json.dumps([one, two, one]), "--json").stdout)["actions"]
    assert both == [action, both[1], action]
    steps = json.loads(cli("predict", cards, "--obs", json.dumps([one, two, one]), "--episode").stdout)
    assert steps == both
    arrays: Any = {"0": np.array([1, 4]), "1/x": np.array([[0.0, 1.0], [1.0, 0.0]])}
    np.savez(tmp_path / "obs.npz", **arrays)
    assert json.loads(cli("predict", cards, "--obs-file", tmp_path / "obs.npz").stdout) == both[:2]


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ([5, {"x": [0, 1]}], "part 0 must hold integers from 0 to 4, got 5"),
        ([1], "obs must be a tuple of 2 parts"),
        ([1, {"y": [0, 1]}], "part 1 must be a dict of x, got ['y']"),
        ([1, {"x": [0, 1, 2]}], "part 1/x must end in shape (2,), got (3,)"),
        ([[1, {"x": [0, 1]}], [1, {}], [1, {}]], "all observations of a batch must have the same parts and shapes"),
        ({"x": 1}, "obs must be a tuple of 2 parts"),
    ],
)
def test_observations_of_another_form_are_refused_by_their_part(cli, cards, obs, message):
    result = cli("predict", cards, "--obs", json.dumps(obs))
    assert (result.exit_code, result.stderr.strip()) == (2, f"error: {message}")
