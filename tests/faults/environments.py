"""Environments that fail, for the tests in this folder; worker processes import this file."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from itertools import repeat
from typing import Any

import gymnasium as gym
import numpy as np


class Unprintable(Exception):
    """An error that can neither be pickled nor printed."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Faulty(gym.Env[Any, Any]):
    """Counts its steps; `fault` happens at step `at` of each process, in episodes of `length` steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))

    def __init__(
        self, fault: str = "", at: int = 5, length: int = 4, seconds: float = 0.0, continuous: bool = False
    ) -> None:
        self.action_space = gym.spaces.Box(-1, 1, (1,)) if continuous else gym.spaces.Discrete(2)
        self.fault, self.at, self.length, self.seconds = fault, at, length, seconds
        self.steps = self.time = 0
        if fault == "exit in constructor":
            sys.exit(3)
        if fault == "error in constructor":
            raise AssertionError
        if fault == "value in constructor":
            raise ValueError("wrong")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        value, _, place = self.fault.partition(" ")
        fails = place == "reset" and self.steps >= self.at
        return np.full(1, float(value) if fails else 0.0, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps, self.time = self.steps + 1, self.time + 1
        obs, reward = np.array([self.time], np.float32), 1.0
        time.sleep(self.seconds)
        if self.steps == self.at:
            obs, reward = self.fail(obs)
        return obs, reward, self.time == self.length, False, {}

    def fail(self, obs: Any) -> tuple[Any, float]:
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.fault == "exit":
            os._exit(7)
        elif self.fault == "hang":
            time.sleep(3600)
        elif self.fault == "busy":
            while True:
                pass
        elif self.fault == "locked":
            deque(repeat(0), maxlen=0)  # an endless loop in C: no other thread gets the interpreter lock
        elif self.fault.startswith("signal "):
            for _ in range(2):
                os.kill(os.getpid(), int(self.fault.split()[1]))
                time.sleep(0.3)
        elif self.fault in ERRORS:
            raise ERRORS[self.fault]
        value, _, place = self.fault.partition(" ")  # such as "nan obs" and "-inf reward"
        return obs + float(value) if place == "obs" else obs, float(value) if place == "reward" else 1.0

    def close(self) -> None:
        if self.fault == "close":
            raise OSError("the simulator is gone")


ERRORS: dict[str, BaseException] = {
    "error": ZeroDivisionError("gone"),
    "system exit": SystemExit(3),
    "keyboard interrupt": KeyboardInterrupt(),
    "generator exit": GeneratorExit(),
    "unprintable": Unprintable(),
}

gym.register("Faulty-v0", lambda **options: Faulty(**options))
