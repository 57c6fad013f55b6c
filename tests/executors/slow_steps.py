"""A wrapper for tests of time limits: each step takes ten milliseconds more."""

import time
from typing import Any

import gymnasium as gym


class SlowSteps(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return super().step(action)
