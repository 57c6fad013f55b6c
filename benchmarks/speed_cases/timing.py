"""Rates of repeated calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from speed_cases.throughput import synchronize


def per_second(call: Callable[[], object], device: str, seconds: float, *, warm_up: int = 1) -> float:
    """Calls a second, after a warm-up; the number of calls between two looks at the clock doubles until it suffices."""
    for _ in range(warm_up):
        call()
    synchronize(device)
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        synchronize(device)
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return count / elapsed
        count = max(2 * count, int(count * seconds / max(elapsed, 1e-6)))
