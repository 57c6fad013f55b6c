"""Environments: pools, preparation, snapshots, and small environments for tests and tutorials."""

import gymnasium as gym

gym.register("FixedHorizonCartPole-v0", "rl_training.envs.fixed_horizon:FixedHorizonCartPole", max_episode_steps=500)
gym.register("Catch-v0", "rl_training.envs.pixels:Catch")
gym.register("CueMemory-v0", "rl_training.envs.pixels:CueMemory")
gym.register("SignedSide-v0", "rl_training.envs.pixels:SignedSide")
gym.register("PointGoal-v0", "rl_training.envs.goal_tasks:PointGoal", max_episode_steps=50)
gym.register("BitFlip-v0", "rl_training.envs.goal_tasks:BitFlip", max_episode_steps=15)
gym.register("CombinationLock-v0", "rl_training.envs.combination_lock:CombinationLock", max_episode_steps=32)
gym.register("CartPoleNoVelocity-v1", "rl_training.envs.hidden_velocity:CartPoleNoVelocity", max_episode_steps=500)
gym.register("PendulumNoVelocity-v1", "rl_training.envs.hidden_velocity:PendulumNoVelocity", max_episode_steps=200)
