"""A function that returns one environment object again and again is refused where that would mix up episodes."""

from __future__ import annotations

import gc
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.wrappers import TimeLimit

from rl_training import PPO
from rl_training.envs.pools.pool import EnvPool

TWICE = r"returned the same CartPoleEnv object twice; create a new one in it, or pass the object itself, such as PPO\("
TINY: dict[str, Any] = {"total_timesteps": 32, "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8],
                        "eval_episodes": 2}  # fmt: skip


@pytest.fixture
def env() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def test_several_environments_cannot_be_one_object(env, tmp_path):
    with pytest.raises(ValueError, match=TWICE):
        PPO(lambda: env, num_envs=2, eval_interval=0, output_dir=str(tmp_path), **TINY).learn()


def test_an_object_inside_new_wrappers_is_found(env):
    with pytest.raises(ValueError, match=TWICE):
        EnvPool(lambda: TimeLimit(env, 5), 2)


def test_an_evaluation_cannot_step_the_object_in_training(env, tmp_path):
    with pytest.raises(ValueError, match=TWICE):
        PPO(lambda: env, num_envs=1, eval_interval=16, output_dir=str(tmp_path), **{**TINY, "eval_episodes": 1}).learn()


def test_one_environment_without_evaluations_may_be_one_object(env, tmp_path):
    agent = PPO(lambda: env, num_envs=1, eval_interval=0, output_dir=str(tmp_path), **TINY).learn()
    result = agent.learn(32).result
    assert result is not None
    assert result.steps == 64
    assert len(agent.evaluate(1)["returns"]) == 1
    with pytest.raises(ValueError, match=TWICE):
        agent.evaluate(2)  # in two environments


def test_the_object_itself_is_copied(env, tmp_path):
    agent = PPO(env, num_envs=2, eval_interval=16, output_dir=str(tmp_path), **TINY).learn()
    assert len(agent.evaluate(2)["returns"]) == 2


def test_a_failed_or_forgotten_pool_does_not_keep_the_object(env):
    with pytest.raises(ValueError, match=TWICE):
        EnvPool(lambda: env, 2)
    pool = EnvPool(lambda: env, 1)
    del pool
    gc.collect()
    with EnvPool(lambda: env, 1) as pool:
        pool.reset()
    EnvPool(lambda: env, 1).close()
