"""Environments: creation, pools, conversion at their boundary, and the registration of small tasks."""

import gymnasium as gym

TASKS = {  # id: class below `tasks`, and the time limit
    "FixedHorizonCartPole-v0": ("fixed_horizon:FixedHorizonCartPole", 500),
    "Catch-v0": ("pixels:Catch", None),
    "CueMemory-v0": ("pixels:CueMemory", None),
    "SignedSide-v0": ("pixels:SignedSide", None),
    "PointGoal-v0": ("goals:PointGoal", 50),
    "BitFlip-v0": ("goals:BitFlip", 15),
    "CombinationLock-v0": ("combination_lock:CombinationLock", 32),
    "CartPoleNoVelocity-v1": ("hidden_velocity:CartPoleNoVelocity", 500),
    "PendulumNoVelocity-v1": ("hidden_velocity:PendulumNoVelocity", 200),
}
for env_id, (place, steps) in TASKS.items():
    gym.register(env_id, f"rl_training.envs.tasks.{place}", max_episode_steps=steps)
