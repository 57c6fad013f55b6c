"""Estimates from random Pendulum steps against what three policies earn in the environment itself."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training import evaluate_policy_offline
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action

pytestmark = pytest.mark.slow
GAMMA = 0.99


class Rest:
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.zeros(len(obs), 1))


class Spin:
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.ones(len(obs), 1))


class SwingUp:
    """Pumps energy until the pole stands, then holds it."""

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        cos, sin, speed = obs.unbind(-1)
        angle, energy = torch.atan2(sin, cos), speed.square() / 6 + 5 * cos
        pump, hold = speed.sign() * (5 - energy).sign(), -5 * angle - speed
        return Action(torch.where(angle.abs() < 0.6, hold, pump).clamp(-1, 1).unsqueeze(1))


def discounted_return(policy) -> float:
    """The mean over 100 episodes that no clock ends; after 600 steps the discount has eaten the rest."""
    envs = gym.make_vec("Pendulum-v1", num_envs=100, vectorization_mode="sync", max_episode_steps=1_000)
    obs, _ = envs.reset(seed=3)
    total = np.zeros(100)
    for step in range(600):
        obs, rewards, *_ = envs.step(2 * policy.act(torch.as_tensor(obs)).actions.numpy())
        total += GAMMA**step * rewards
    return float(total.mean())


def test_policies_far_from_the_data_are_estimated_near_their_real_returns():
    dataset = roll_dataset("Pendulum-v1", rows=20_000)
    for policy in (Rest(), Spin(), SwingUp()):
        found = evaluate_policy_offline(policy, dataset, updates=5_000, gamma=GAMMA)
        assert found.estimate == pytest.approx(discounted_return(policy), abs=75), found  # random play: about -610
