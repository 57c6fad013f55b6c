"""Times of steps, and the answer of a peer's training. Each script here takes one JSON request and prints one answer.

A request has the option names of rl_training: {"library": "sb3", "algo": "sac", "env": "Hopper-v5", "steps": 2500,
"warm_up": 1000, "seed": 0, "num_envs": 1, "images": false, "options": {"batch_size": 256, ...}}; offline, "data" in
place of "env".
"""

from __future__ import annotations

import json
import sys
import time
from types import ModuleType
from typing import Any


class Marks:
    """Records the time at which the steps after the warm-up begin, and the time of the last step."""

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self.first: tuple[int, float] | None = None
        self.last = (0, time.perf_counter())

    def mark(self, step: int) -> None:
        self.last = (step, time.perf_counter())
        if self.first is None and step >= self.warm_up:
            self.first = self.last

    def steps_per_second(self) -> float:
        first = self.first or (0, self.last[1])
        return (self.last[0] - first[0]) / max(self.last[1] - first[1], 1e-9)


def request() -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    return asked


def answer(marks: Marks, *libraries: ModuleType) -> None:
    versions = {library.__name__: library.__version__ for library in libraries}
    print(json.dumps({"steps_per_second": marks.steps_per_second(), "steps": marks.last[0], "versions": versions}))
