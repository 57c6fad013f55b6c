"""Environment pools: true last observations, one seed per episode, checked actions and values."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.envs.pools.group import EnvError, Episode
from rl_training.envs.pools.pool import EnvPool
from rl_training.streams import episode_seed
from rl_training.types import EnvSpec

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class Counting(gym.Env[np.ndarray, np.int64]):
    """Observation and reward are the number of the step; both flags are set at the given steps."""

    observation_space = spaces.Box(0, 100, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, terminates: int = 99, truncates: int = 99) -> None:
        self.terminates, self.truncates = terminates, truncates

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.array([0.0]), {}

    def step(self, action: np.int64) -> Step:
        self.steps += 1
        terminated, truncated = self.steps == self.terminates, self.steps == self.truncates
        return np.array([float(self.steps)]), float(self.steps), terminated, truncated, {}


class Echo(gym.Env[np.ndarray, Any]):
    """The observation is the last action."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space
        shape = (int(np.prod(action_space.shape or ())),)
        self.observation_space = spaces.Box(-100, 100, shape, np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(self.observation_space.shape or ()), {}

    def step(self, action: Any) -> Step:
        assert self.action_space.contains(action)
        return np.ravel(action).astype(float), 0.0, False, False, {}


class Faulty(Counting):
    """Returns the given values from its second step on."""

    def __init__(self, obs: Any = None, reward: float = 0.0, error: str = "") -> None:
        super().__init__()
        self.faults = obs, reward, error

    def step(self, action: np.int64) -> Step:
        obs, _, ends, stops, info = super().step(action)
        if self.steps < 2:
            return obs, 0.0, ends, stops, info
        wrong, reward, error = self.faults
        if error:
            raise ZeroDivisionError(error)
        return obs if wrong is None else wrong, reward, ends, stops, info


def test_next_obs_is_the_true_last_observation_and_the_next_episode_starts_at_once():
    with EnvPool(partial(Counting, terminates=3)) as pool:
        assert pool.reset().tolist() == [[0]]
        steps = [pool.step(np.array([0])) for _ in range(5)]
        assert [step.next_obs.item() for step in steps] == [1, 2, 3, 1, 2]
        assert [step.obs.item() for step in steps] == [1, 2, 0, 1, 2]
        assert [step.terminated.item() for step in steps] == [False, False, True, False, False]
        assert [step.finished for step in steps] == [[], [], [Episode(0, 6.0, 3)], [], []]  # 1 + 2 + 3


def test_terminated_takes_precedence_over_truncated():
    for terminates, truncates, flags in ((2, 9, (True, False)), (9, 2, (False, True)), (2, 2, (True, False))):
        with EnvPool(partial(Counting, terminates, truncates)) as pool:
            pool.reset()
            pool.step(np.array([0]))
            step = pool.step(np.array([0]))
            assert (step.terminated.item(), step.truncated.item()) == flags


def test_observations_and_rewards_are_float32_and_flags_bool():
    with EnvPool(Counting, 2) as pool:
        pool.reset()
        assert [column.dtype for column in pool.step(np.array([0, 0]))[:5]] == [
            np.float32,
            np.float32,
            bool,
            bool,
            np.float32,
        ]


def test_pixels_stay_uint8():
    class Pixels(Counting):
        observation_space = spaces.Box(0, 255, (1, 5, 5), np.uint8)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return np.full((1, 5, 5), 200, np.uint8), {}

    with EnvPool(Pixels) as pool:
        assert pool.spec.obs_dtype == "uint8"
        assert pool.reset().dtype == np.uint8


def test_a_float_observation_from_a_uint8_space_is_refused():
    class Pixels(Counting):
        observation_space = spaces.Box(0, 255, (1, 5, 5), np.uint8)

    with EnvPool(Pixels) as pool, pytest.raises(EnvError, match=r"shape \(1,\), but its space has \(1, 5, 5\)"):
        pool.reset()


def test_an_episode_is_seeded_by_its_number_and_its_environment():
    with EnvPool("CartPole-v1", 2, seed=5, env_kwargs={"max_episode_steps": 2}) as pool:
        first, bare = pool.reset(), gym.make("CartPole-v1")
        pool.step(np.array([0, 0]))
        second = pool.step(np.array([0, 0])).obs
        for env in range(2):
            np.testing.assert_array_equal(first[env], bare.reset(seed=episode_seed(5, env, 0))[0])
            np.testing.assert_array_equal(second[env], bare.reset(seed=episode_seed(5, env, 1))[0])


def test_box_actions_are_clipped_and_scaled_to_the_environments_units_and_shape():
    low, high = np.array([[0.0, -4.0]], np.float32), np.array([[10.0, 4.0]], np.float32)
    with EnvPool(partial(Echo, spaces.Box(low, high)), 3) as pool:
        assert pool.spec == EnvSpec((2,), "box", 2, "float32", (1, 2), (0.0, -4.0), (10.0, 4.0))
        pool.reset()
        step = pool.step(np.array([[-1, 1], [0, 0.5], [7, -7]], np.float32))
        assert step.next_obs.tolist() == [[0, 4], [5, 2], [10, -4]]


def test_actions_of_one_reach_the_bounds_and_never_exceed_them():
    low, high = np.array([0.1, -0.3], np.float32), np.array([0.7, 1e6], np.float32)
    with EnvPool(partial(Echo, spaces.Box(low, high)), 2) as pool:
        pool.reset()
        step = pool.step(np.array([[-1, -1], [1, 1]], np.float32))
        np.testing.assert_allclose(step.next_obs, [low, high], rtol=1e-6)  # Echo raises for actions outside the bounds


def test_discrete_actions_count_from_the_spaces_start():
    with EnvPool(partial(Echo, spaces.Discrete(3, start=5)), 3) as pool:
        assert (pool.spec.action_kind, pool.spec.action_dim) == ("discrete", 3)
        pool.reset()
        assert pool.step(np.array([0, 1, 2])).next_obs.ravel().tolist() == [5, 6, 7]


def test_multi_discrete_actions_count_from_their_starts_and_have_the_spaces_shape():
    space = spaces.MultiDiscrete(np.array([[3, 2], [4, 5]]), start=np.array([[5, 0], [-1, 0]]))
    with EnvPool(partial(Echo, space), 2) as pool:
        assert (pool.spec.action_kind, pool.spec.action_dim) == ("multi_discrete", 4)
        assert (pool.spec.action_sizes, pool.spec.action_starts) == ((3, 2, 4, 5), (5, 0, -1, 0))
        assert EnvSpec.from_json(json.loads(json.dumps(pool.spec.to_json()))) == pool.spec
        pool.reset()
        step = pool.step(np.array([[0, 0, 0, 0], [2, 1, 3, 4]]))  # Echo raises for actions outside the space
        assert step.next_obs.tolist() == [[5, 0, -1, 0], [7, 1, 2, 4]]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([[0, 0], [2, 2]]), r"action 1 must be in 0\.\.1, got 2 for environment 1"),
        (np.array([[-1, 0], [0, 0]]), r"action 0 must be in 0\.\.2, got -1 for environment 0"),
        (np.zeros((2, 2)), r"integers of shape \(2, 2\), got float64"),
        (np.array([0, 0]), r"integers of shape \(2, 2\), got int64 of shape \(2,\)"),
    ],
)
def test_bad_multi_discrete_actions_never_reach_an_environment(actions: np.ndarray, message: str):
    with EnvPool(partial(Echo, spaces.MultiDiscrete([3, 2])), 2) as pool:
        pool.reset()
        with pytest.raises(ValueError, match=message):
            pool.step(actions)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([[0.0], [np.nan]]), r"must be finite, got \[nan\] for environment 1"),
        (np.array([[-np.inf], [0.0]]), r"must be finite, got \[-inf\] for environment 0"),
        (np.zeros((2, 3)), r"shape \(2, 1\), got \(2, 3\)"),
    ],
)
def test_bad_box_actions_never_reach_an_environment(actions: np.ndarray, message: str):
    with EnvPool("Pendulum-v1", 2) as pool:
        pool.reset()
        with pytest.raises(ValueError, match=message):
            pool.step(actions)
        assert np.isfinite(pool.step(np.zeros((2, 1))).next_obs).all()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 3]), r"in 0\.\.2, got 3 for environment 1"),
        (np.array([-1, 0]), r"in 0\.\.2, got -1 for environment 0"),
        (np.array([0.0, 1.0]), "2 integers, got float64"),
        (np.array([0]), r"2 integers, got int64 of shape \(1,\)"),
    ],
)
def test_bad_discrete_actions_never_reach_an_environment(actions: np.ndarray, message: str):
    with EnvPool(Counting, 2) as pool:
        pool.reset()
        with pytest.raises(ValueError, match=message):
            pool.step(actions)
        assert pool.step(np.array([0, 0])).next_obs.tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"obs": np.array([np.nan])}, r"environment 0 returned a NaN or infinite observation: nan at \[0\]"),
        ({"reward": np.inf}, "environment 0 returned a NaN or infinite reward: inf"),
        (
            {"obs": np.zeros(2)},
            r"environment 0: `step` returned an observation of shape \(2,\), but its space has \(1,\)",
        ),
        ({"error": "gone"}, "environment 0 failed in step: ZeroDivisionError: gone"),
    ],
)
def test_an_environment_with_invalid_output_is_named(fault: dict[str, Any], message: str):
    with EnvPool(partial(Faulty, **fault)) as pool:
        pool.reset()
        pool.step(np.array([0]))
        with pytest.raises(EnvError, match=message):
            pool.step(np.array([0]))


def test_large_observations_count_as_finite():
    with EnvPool(partial(Faulty, obs=np.array([1e30]))) as pool:  # its square is not, in float32
        pool.reset()
        pool.step(np.array([0]))
        assert pool.step(np.array([0])).next_obs.item() == pytest.approx(1e30)


def test_an_unknown_environment_gets_suggestions():
    with pytest.raises(ValueError, match=r"'CartPol-v1' not found. Did you mean 'CartPole-v1'"):
        EnvPool("CartPol-v1")


def test_an_equal_version_alone_is_no_similarity():
    with pytest.raises(ValueError, match="'Foo-v1' not found") as caught:
        EnvPool("Foo-v1")
    assert "Did you mean" not in str(caught.value)


def test_a_missing_package_gets_its_install_command(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=r'Hopper-v5 needs .*; run: pip install "rl-training\[mujoco\]"'):
        EnvPool("Hopper-v5")


@pytest.mark.parametrize(("num_envs", "workers"), [(0, 0), (2, 3), (2, -1)])
def test_invalid_numbers_of_environments_or_workers_are_refused(num_envs: int, workers: int):
    with pytest.raises(ValueError, match="must be"):
        EnvPool("CartPole-v1", num_envs, workers=workers)


def test_stepping_before_a_reset_is_refused():
    with EnvPool("CartPole-v1") as pool, pytest.raises(RuntimeError, match="reset"):
        pool.step(np.array([0]))


@pytest.mark.parametrize(
    "env_id", ["", "two words", "a:b:c", ":X-v0", "..a:X-v0", "a.:X-v0", "ale_py:a:PongNoFrameskip-v4"]
)
def test_a_malformed_id_is_refused_with_the_forms_that_are_allowed(env_id):
    with pytest.raises(ValueError, match="env_id must be a Gymnasium id such as CartPole-v1, my_module:MyEnv"):
        EnvPool(env_id)
