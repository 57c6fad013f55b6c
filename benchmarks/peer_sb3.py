"""Trains with stable-baselines3 or sb3-contrib: options and result are JSON. Needs the Python of the peer's venv.

python benchmarks/peer_sb3.py '{"algo": "DQN", "env": "CartPole-v1", "steps": 50000, "seed": 0, "num_envs": 1,
 "options": {...}}'
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

EPISODES, EVALUATION_SEED = 50, 12345


def main() -> None:
    request = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    algorithm = getattr(stable_baselines3, request["algo"], None) or getattr(sb3_contrib, request["algo"])
    env = make_vec_env(request["env"], request["num_envs"], env_kwargs={"disable_env_checker": True})
    model = algorithm("MlpPolicy", env, seed=request["seed"], device="cpu", **request["options"])
    start = time.perf_counter()
    model.learn(request["steps"])
    seconds = time.perf_counter() - start
    env = gym.make(request["env"], disable_env_checker=True)
    env.reset(seed=EVALUATION_SEED)
    score, _ = evaluate_policy(model, env, EPISODES, deterministic=True, warn=False)
    modules = (stable_baselines3, sb3_contrib, torch, gym, np)
    versions = {module.__name__: module.__version__ for module in modules}
    print(json.dumps({"score": float(score), "seconds": seconds, "versions": versions}))


if __name__ == "__main__":
    main()
