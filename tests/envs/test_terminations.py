"""Termination rules agree with their environments at every step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.envs.terminations import RULES, termination_rule
from rl_training.types import Array

FALLING = ["Ant", "Hopper", "Humanoid", "InvertedDoublePendulum", "InvertedPendulum", "Walker2d"]
LASTING = ["HalfCheetah", "Pendulum", "Pusher", "Reacher", "Swimmer"]
VERSIONS = {"Pendulum": ("v1",), "Pusher": ("v5",)}  # the older pusher asks for an older MuJoCo


def ids(names: list[str]) -> list[str]:
    return [f"{name}-{version}" for name in names for version in VERSIONS.get(name, ("v4", "v5"))]


def lived(env_id: str, steps: int) -> tuple[Array, Array]:
    """Next observations of random steps, and whether each ended its episode."""
    env = gym.make(env_id, disable_env_checker=True)
    env.action_space.seed(0)
    env.reset(seed=0)
    seen, ended = [], []
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(obs)
        ended.append(terminated)
        if terminated or truncated:
            env.reset()
    env.close()
    return np.asarray(seen, dtype=np.float32), np.asarray(ended)


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("env_id", ids(FALLING))
def test_the_rule_agrees_with_the_environment(env_id):
    pytest.importorskip("mujoco")
    obs, ended = lived(env_id, 400)
    rule = termination_rule(env_id)
    assert rule is not None
    assert rule(torch.from_numpy(obs)).tolist() == ended.tolist()
    assert 0 < ended.sum() < 400


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("env_id", ids(LASTING))
def test_environments_without_termination_have_none(env_id):
    pytest.importorskip("mujoco")
    obs, ended = lived(env_id, 60)
    rule = termination_rule(env_id)
    assert rule is not None
    assert not ended.any()
    assert not rule(torch.from_numpy(obs)).any()


def test_every_rule_is_tested():
    assert sorted(RULES) == sorted(FALLING + LASTING)


@pytest.mark.parametrize("name", ["Hopper", "Ant", "InvertedPendulum"])
def test_nan_terminates_an_episode(name):
    assert RULES[name](torch.tensor([[0.9, 0.0, float("nan")]])).tolist() == [True]


def test_a_hopper_below_minus_a_hundred_has_terminated():
    assert RULES["Hopper"](torch.tensor([[1.2, 0.0, -101.0], [1.2, 0.0, -99.0]])).tolist() == [True, False]


def test_unknown_environments_have_no_rule():
    assert termination_rule("LunarLanderContinuous-v3") is None
    assert termination_rule(None) is None
    assert termination_rule("Hopper-v5", {"terminate_when_unhealthy": False}) is None
    assert termination_rule("Hopper-v5", {"healthy_z_range": [0.5, 2.0]}) is None
    assert termination_rule("Hopper-v5", {"reset_noise_scale": 0.1}) is RULES["Hopper"]
