"""Chooses the number of worker processes for several environments."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym

from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.creation.making import EnvFactory, make_env
from rl_training.envs.masks import sample_action
from rl_training.envs.pools.group import close_env
from rl_training.processes import shares_the_machine, usable_cores

LEAST_CORES = 4
LEAST_SECONDS = 0.0005  # for one step of all environments in turn; messages to workers take a part of it
STEPS = 20  # that are measured


def choose_workers(source: EnvFactory, count: int) -> int:
    """Returns the number of processes for `count` environments, or 0 to step them in this process.

    It changes the speed alone, so it may depend on the machine and on a measurement.
    """
    cores = usable_cores()
    if count == 1 or cores < LEAST_CORES or shares_the_machine():
        return 0
    if not may_start_processes() or not _is_importable(source):
        return 0
    try:
        seconds = _step_seconds(lambda: make_env(source, training=True))
    except Exception:  # the pool raises it again, with a message
        return 0
    return min(count, cores // 2) if count * seconds >= LEAST_SECONDS else 0


def may_start_processes() -> bool:
    """Whether a new process does not run the user's script again, which may lack `if __name__ == "__main__":`."""
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    own = Path(file or "").stem == "rl-training" or (spec is not None and spec.name.startswith("rl_training."))
    return (file is None or own) and not multiprocessing.current_process().daemon


def _is_importable(source: EnvFactory) -> bool:
    if isinstance(source.env, LentEnv):  # an object of the user, not to be stepped before the training
        return False
    try:
        source.require_importable("worker processes")
    except TypeError:
        return False
    return True


def _step_seconds(make: Callable[[], gym.Env[Any, Any]]) -> float:
    """Returns the median duration of a step with random actions."""
    env, seconds = make(), []
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(STEPS):
            action, began = sample_action(env), time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            seconds.append(time.perf_counter() - began)
            if terminated or truncated:
                env.reset()
    finally:
        close_env(env)
    return median(seconds)
