"""Environments that need preparing before an agent can learn in them, and those that come with the package."""

import gymnasium as gym

gym.register(
    "FixedHorizonCartPole-v0", "rl_training.envs.fixed_horizon:FixedHorizonCartPole", max_episode_steps=500
)  # fmt: skip
