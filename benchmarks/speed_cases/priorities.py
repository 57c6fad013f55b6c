"""Cost of prioritised replay: sampling 64 of a million slots and setting 64 priorities, on one core.

Each call is timed. The result has the fastest twentieth, which a busy machine changes least, and the median.
`--device cuda` times a captured graph of both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from rl_training.data.replay.priorities import Priorities

SLOTS, ROWS, CALLS = 1_000_000, 64, 3_000
GOAL_MS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    device = args.device
    torch.set_num_threads(1)
    priorities, generator = Priorities(SLOTS, device=device), torch.Generator(device).manual_seed(0)
    priorities.set(torch.arange(SLOTS, device=device), torch.rand(SLOTS, generator=generator, device=device))
    errors = torch.rand(ROWS, generator=generator, device=device)
    slots, _ = priorities.sample((ROWS,), generator)
    times = (
        {
            "draw": timed(lambda: priorities.sample((ROWS,), generator)),
            "set": timed(lambda: priorities.set(slots, errors)),
            "one addition, to compare": timed(lambda: errors + errors),
        }
        if device == "cpu"
        else {"draw and set, captured": timed(captured(priorities, generator, errors))}
    )
    return {
        "what": f"{ROWS} of {SLOTS:,} priorities on {device}",
        "result": "; ".join(
            f"{name} {each['best_ms']:.3f} ms (median {each['median_ms']:.3f})" for name, each in times.items()
        ),
        "goal": f"draw and set under {GOAL_MS} ms each",
        "times": times,
        "commands": [f"python benchmarks/speed.py priorities --device {device}"],
    }


def captured(priorities: Priorities, generator: torch.Generator, errors: torch.Tensor) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        priorities.set(priorities.sample((ROWS,), generator)[0], errors)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay


def timed(call: Callable[[], object]) -> dict[str, float]:
    seconds = []
    for _ in range(CALLS):
        before = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - before)
    seconds.sort()
    return {"best_ms": 1e3 * seconds[CALLS // 20], "median_ms": 1e3 * seconds[CALLS // 2]}
