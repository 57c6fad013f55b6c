"""How long one update of Dreamer takes, world model, dream and optimizer together: eager, and replayed as a CUDA graph.

python benchmarks/dreamer_speed.py [--size size12m] [--precision bfloat16] [--compile]

Windows are of random pictures of 64x64 in colour, drawn on the device and written back as in training.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch
from provenance import provenance
from throughput import finish

from rl_training.algorithms import DreamerAlgorithm, Updater
from rl_training.data import RecurrentReplayBuffer
from rl_training.experiment.sequences import kept_memory
from rl_training.models.dreamer import SIZES
from rl_training.types import EnvSpec

SPEC = EnvSpec((3, 64, 64), "discrete", 18, obs_dtype="uint8")
RECORDS, WARM_UPS = 4_000, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="size12m")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--updates", type=int, default=50, help="timed, of each way")
    parser.add_argument("--compile", action="store_true", help="compile it in parts as well")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    ways = [(precision, capture) for precision in asked.precision for capture in (False, True)]
    times = {}
    for precision, capture in ways if asked.device.startswith("cuda") else ways[::2]:
        name = f"{'captured' if capture else 'uncaptured' if asked.compile else 'eager'} {precision}"
        times[name] = update_time(asked, precision=precision, capture=capture)
    print(json.dumps({**summary(times, asked), **provenance()}, indent=2))


def summary(times: dict[str, float], asked: argparse.Namespace) -> dict[str, Any]:
    work = "16 windows of 64 pictures of 64x64, 15 steps of a dream"
    compiled = ", compiled in parts" if asked.compile else ""
    return {
        "what": f"One update of Dreamer, {asked.size}, {work}{compiled}",
        "result": "; ".join(f"{name}: {1000 * seconds:.1f} ms" for name, seconds in times.items()),
        "goal": "size12m on one H200: 30 ms",
        "milliseconds": {name: 1000 * seconds for name, seconds in times.items()},
        "commands": [" ".join(["python benchmarks/dreamer_speed.py", *sys.argv[1:]])],
    }


def update_time(asked: argparse.Namespace, *, precision: str, capture: bool) -> float:
    learner = DreamerAlgorithm.build(SPEC, size=asked.size, precision=precision).to(asked.device)
    updater = Updater([learner], compile=asked.compile, capture=capture)
    replay = filled(learner, asked.device)
    for _ in range(WARM_UPS):  # one at a time, as training asks for them
        updater.run(replay, 1)
    finish(asked.device)
    began = time.perf_counter()
    for _ in range(asked.updates):
        updater.run(replay, 1)
    finish(asked.device)
    return (time.perf_counter() - began) / asked.updates


def filled(learner: DreamerAlgorithm, device: str) -> RecurrentReplayBuffer:
    latents = kept_memory(learner)
    replay = RecurrentReplayBuffer(RECORDS, SPEC, latents=latents, device=device)
    kept = {name: torch.zeros(1, *shape, dtype=dtype, device=device) for name, (shape, dtype) in latents.items()}
    for step in range(RECORDS // 2):
        obs = torch.randint(256, (2, 1, *SPEC.obs_shape), dtype=torch.uint8, device=device)
        end = torch.full((1,), float(step % 500 == 499), device=device)
        row = {"obs": obs[0], "next_obs": obs[1], "actions": torch.randint(18, (1,), device=device)}
        replay.add({**row, "rewards": torch.randn(1, device=device), "dones": end, "truncated": 0 * end, **kept})
    replay.seed(0)
    return replay


if __name__ == "__main__":
    main()
