"""Time of one Dreamer update (world model, actor, critic, optimizer): eager, and replayed as a CUDA graph.

Windows hold random 64x64 colour images. They are sampled on the device and latents are written back, as in training.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch

from rl_training.algorithms import DreamerAlgorithm, Updater
from rl_training.data import RecurrentReplayBuffer
from rl_training.models.dreamer import SIZES
from rl_training.runtime.lanes.sequence import stored_memory
from rl_training.types import EnvSpec
from speed_cases.throughput import synchronize

SPEC = EnvSpec((3, 64, 64), "discrete", 18, obs_dtype="uint8")
RECORDS, WARM_UPS = 4_000, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="size12m")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--updates", type=int, default=50, help="timed updates of each variant")
    parser.add_argument("--compile", action="store_true", help="compile the model in parts")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    variants = [(precision, capture) for precision in args.precision for capture in (False, True)]
    times = {}
    for precision, capture in variants if args.device.startswith("cuda") else variants[::2]:
        name = f"{'captured' if capture else 'uncaptured' if args.compile else 'eager'} {precision}"
        times[name] = update_time(args, precision=precision, capture=capture)
    return summary(times, args)


def summary(times: dict[str, float], args: argparse.Namespace) -> dict[str, Any]:
    work = "16 sequences of 64 images (64x64), 15 imagined steps"
    compiled = ", compiled in parts" if args.compile else ""
    return {
        "what": f"One update of Dreamer, {args.size}, {work}{compiled}",
        "result": "; ".join(f"{name}: {1000 * seconds:.1f} ms" for name, seconds in times.items()),
        "goal": "size12m on one H200: 30 ms",
        "milliseconds": {name: 1000 * seconds for name, seconds in times.items()},
        "commands": [" ".join(["python benchmarks/speed.py", *sys.argv[1:]])],
    }


def update_time(args: argparse.Namespace, *, precision: str, capture: bool) -> float:
    learner = DreamerAlgorithm.build(SPEC, size=args.size, precision=precision).to(args.device)
    updater = Updater([learner], compile=args.compile, capture=capture)
    replay = filled(learner, args.device)
    for _ in range(WARM_UPS):  # one at a time, as in training
        updater.run(replay, 1)
    synchronize(args.device)
    start = time.perf_counter()
    for _ in range(args.updates):
        updater.run(replay, 1)
    synchronize(args.device)
    return (time.perf_counter() - start) / args.updates


def filled(learner: DreamerAlgorithm, device: str) -> RecurrentReplayBuffer:
    latents = stored_memory(learner)
    replay = RecurrentReplayBuffer(RECORDS, SPEC, latents=latents, device=device)
    kept = {name: torch.zeros(1, *shape, dtype=dtype, device=device) for name, (shape, dtype) in latents.items()}
    for step in range(RECORDS // 2):
        obs = torch.randint(256, (2, 1, *SPEC.obs_shape), dtype=torch.uint8, device=device)
        end = torch.full((1,), float(step % 500 == 499), device=device)
        row = {"obs": obs[0], "next_obs": obs[1], "actions": torch.randint(18, (1,), device=device)}
        replay.add({**row, "rewards": torch.randn(1, device=device), "dones": end, "truncated": 0 * end, **kept})
    replay.seed(0)
    return replay
