"""Environments that need preparing before an agent can learn in them, those of our own, and what is known of others."""

import gymnasium as gym

gym.register(
    "FixedHorizonCartPole-v0", "rl_training.envs.fixed_horizon:FixedHorizonCartPole", max_episode_steps=500
)  # fmt: skip
gym.register("Catch-v0", "rl_training.envs.pixels:Catch")
gym.register("CueMemory-v0", "rl_training.envs.pixels:CueMemory")
gym.register("SignedSide-v0", "rl_training.envs.pixels:SignedSide")
