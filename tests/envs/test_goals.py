"""Tasks with goals, the rewards of other goals, and reports of success."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformReward

from rl_training.envs.creation.making import EnvFactory, make_env, spec_of
from rl_training.envs.goals import GoalRewards
from rl_training.envs.pools.group import EnvError
from rl_training.envs.successes import Successes
from rl_training.envs.tasks.goals import PointGoal


@pytest.mark.parametrize("env_id", ["PointGoal-v0", "BitFlip-v0"])
def test_rewards_are_those_of_compute_reward_and_tell_success(env_id):
    env: Any = gym.make(env_id)
    env.action_space.seed(0)
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        for _ in range(env.spec.max_episode_steps):
            assert env.observation_space.contains(obs)
            obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
            assert reward == env.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
            assert (reward == 0) == info["is_success"]
            if terminated or truncated:
                break
        assert terminated or truncated


def test_a_point_reaches_its_goal_and_stays_until_the_time_limit():
    env: Any = gym.make("PointGoal-v0")
    obs, _ = env.reset(seed=0)
    for step in range(50):
        place, velocity = np.split(obs["observation"], 2)
        obs, reward, terminated, truncated, info = env.step(
            np.clip(20 * (obs["desired_goal"] - place) - 60 * velocity, -1, 1)
        )
        assert not terminated
        assert truncated == (step == 49)
    assert reward == 0
    assert info["is_success"]
    far = env.unwrapped.compute_reward(np.zeros((3, 2)), np.array([[0.04, 0], [0.06, 0], [0.04, 0.04]]), {})
    assert far.tolist() == [0, -1, -1]


def test_walls_stop_the_point():
    env: Any = gym.make("PointGoal-v0")
    env.reset(seed=0)
    for _ in range(49):
        obs = env.step(np.array([1.0, -1.0]))[0]
    assert obs["observation"].tolist() == [1, -1, 0, 0]


def test_bits_terminate_at_the_goal():
    env: Any = gym.make("BitFlip-v0", bits=5)
    obs, _ = env.reset(seed=1)
    wrong = np.flatnonzero(obs["achieved_goal"] != obs["desired_goal"])
    results = [env.step(bit) for bit in wrong]
    assert [result[1] for result in results] == [-1.0] * (len(wrong) - 1) + [0.0]
    assert [result[2] for result in results] == [False] * (len(wrong) - 1) + [True]
    assert env.unwrapped.compute_terminated(obs["desired_goal"], obs["desired_goal"], {})


def goal_rewards(env: Any, **options: Any) -> GoalRewards:
    source = EnvFactory.of(env, options)
    return GoalRewards(source, spec_of(source))


def test_rewards_of_other_goals():
    rewards = goal_rewards("PointGoal-v0")
    achieved = np.array([[0, 0], [0.5, 0], [0.5, 0]], np.float32)
    goals = np.array([[0, 0.04], [0.5, 0.06], [0.5, 0]], np.float32)
    dones = np.array([1.0, 0.0, 0.0])
    found, ends = rewards(achieved, goals, dones)
    assert found.tolist() == [0, -1, 0]
    assert ends.tolist() == [1, 0, 0]  # the environment has no compute_terminated


def test_goals_are_passed_in_the_environments_own_form_and_ends_are_computed_again():
    rewards = goal_rewards("BitFlip-v0", bits=3)
    achieved = np.array([[0, 1, 1], [0, 1, 1]], np.float32)
    found, ends = rewards(achieved, np.array([[0, 1, 1], [0, 0, 1]], np.float32), np.zeros(2))
    assert found.tolist() == [0, -1]
    assert ends.tolist() == [1, 0]
    assert rewards.columns.own(achieved).dtype == np.int8


class Reach(gym.Env[Any, Any]):
    """The keys of a goal environment, and what else `methods` adds."""

    def __init__(self, **methods: Any) -> None:
        part = spaces.Box(-1, 1, (2,))
        self.observation_space = spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
        self.action_space = spaces.Discrete(2)
        vars(self).update(methods)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {name: np.zeros(2, np.float32) for name in self.observation_space.spaces}, {}  # type: ignore[attr-defined]

    def step(self, action: Any) -> Any:
        return self.reset()[0], -2.0, False, False, {}


def distance(achieved: Any, goal: Any, info: Any, *, axis: Any = -1, offset: float = -2.0) -> Any:
    return offset - np.linalg.norm(achieved - goal, axis=axis)


def fails(achieved: Any, goal: Any, info: Any) -> Any:
    raise KeyError("mass")


def gain(achieved: Any, goal: Any, info: Any) -> Any:
    return (achieved - goal)[..., 0] - 2


def is_past(achieved: Any, goal: Any, info: Any) -> bool:
    return bool(achieved[0] > goal[0])


def test_the_achieved_goal_is_the_first_argument():
    rewards = goal_rewards(partial(Reach, compute_reward=gain, compute_terminated=is_past))
    high, low = np.array([[0.5, 0]], np.float32), np.array([[-0.5, 0]], np.float32)
    assert [each.tolist() for each in rewards(high, low, np.zeros(1))] == [[-1], [1]]
    assert [each.tolist() for each in rewards(low, high, np.zeros(1))] == [[-3], [0]]


def test_environments_without_rewards_of_other_goals_are_refused():
    assert goal_rewards(partial(Reach, compute_reward=distance)) is not None
    with pytest.raises(ValueError, match=r"compute_reward\(achieved_goal, desired_goal, info\), and .* has none"):
        goal_rewards(Reach)
    with pytest.raises(ValueError, match="hindsight needs Dict observations with observation, achieved_goal"):
        goal_rewards("CartPole-v1")
    with pytest.raises(EnvError, match=r"one reward for each row of goals, shape \(8,\), got \(\)"):
        goal_rewards(partial(Reach, compute_reward=partial(distance, axis=None)))
    with pytest.raises(EnvError, match=r"compute_reward of .* failed: KeyError"):
        goal_rewards(partial(Reach, compute_reward=fails))
    with pytest.raises(EnvError, match=r"compute_reward of .* returned nan for row 0 of 8"):
        goal_rewards(partial(Reach, compute_reward=partial(distance, offset=np.nan)))


def test_rewards_that_differ_from_those_of_a_step_are_refused():
    with pytest.raises(ValueError, match="returned -1 instead of -2"):
        goal_rewards(partial(Reach, compute_reward=partial(distance, offset=-1.0)))
    scaled = EnvFactory("PointGoal-v0", wrappers=(partial(TransformReward, func=lambda reward: 10 * float(reward)),))
    with pytest.raises(ValueError, match="returned -1 instead of -10; change it, or remove wrappers"):
        GoalRewards(scaled, spec_of(scaled))


def test_a_step_that_fails_is_reported_with_its_place():
    class Failing(PointGoal):
        def step(self, action: Any) -> Any:
            raise KeyError("gripper")

    with pytest.raises(
        EnvError, match=r"failed in random steps that check compute_reward: KeyError: 'gripper' \(tests"
    ):
        GoalRewards(EnvFactory.of(Failing), spec_of("PointGoal-v0"))


class Reporting(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `report` to `info`, or replaces it by None."""

    def __init__(self, env: Any, report: dict[str, Any] | None) -> None:
        super().__init__(env)
        self.report = report

    def step(self, action: Any) -> Any:
        *rest, info = self.env.step(action)
        return *rest, None if self.report is None else {**info, **self.report}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"is_success": True}, True),
        ({"success": np.float64(0)}, False),
        ({"success": np.ones(2)}, None),
        ({}, None),
        (None, None),
    ],
)
def test_success_is_read_at_the_end_of_an_episode(report, expected):
    found: list[Any] = []
    env = Successes(Reporting(make_env("CartPole-v1"), report), found)
    env.reset(seed=0)
    while not any(env.step(0)[2:4]):
        assert found == []
    assert found == [expected]
