"""CartPole with a fixed horizon: equal episode lengths, reward only for upright steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rl_training.envs.creation.making import make_env


def episode(env: gym.Env, actions, seed: int = 0):
    """Rewards, observations and the two kinds of ends of one whole episode."""
    env.reset(seed=seed)
    rows = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((reward, obs, terminated, truncated))
        if terminated or truncated:
            break
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_a_fallen_pole_stays_down_with_reward_zero():
    _, there, _, _ = episode(make_env("CartPole-v1", {}), [1] * 600)  # always to the right: it soon falls
    rewards, obs, terminated, truncated = episode(make_env("FixedHorizonCartPole-v0", {}), [1] * 600)
    upright = len(there) - 1  # the last step there is the one in which it fell
    assert len(rewards) == 500
    assert rewards.tolist() == [1.0] * upright + [0.0] * (500 - upright)
    np.testing.assert_array_equal(obs[:upright], there[:-1])
    np.testing.assert_allclose(obs[upright:], np.tile([0, 0, np.radians(24), 0], (500 - upright, 1)), rtol=1e-6)
    assert not terminated.any()
    assert truncated.tolist() == [False] * 499 + [True]


def test_all_failures_lead_to_the_same_state():
    env = make_env("FixedHorizonCartPole-v0", {})
    _, right, _, _ = episode(env, [1] * 600)
    _, left, _, _ = episode(env, [0] * 600, seed=5)
    assert (right[-1] == left[-1]).all()
    assert env.observation_space.contains(right[-1])


def test_the_next_episode_starts_upright():
    env = make_env("FixedHorizonCartPole-v0", {})
    first, _, _, _ = episode(env, [1] * 600, seed=3)
    again, _, _, _ = episode(env, [1] * 600, seed=3)
    assert again.tolist() == first.tolist()
    assert again[0] == 1.0
