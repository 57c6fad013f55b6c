"""Updates per second, summed over seeds: IQL by `rl-training train`, others by `Updater.run`; 1 and 16 seeds."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.algorithms import Learner, REDQAlgorithm, SACAlgorithm, TD3Algorithm, Updater
from rl_training.data import ReplayBuffer
from rl_training.types import EnvSpec

OBS, ACTIONS = 17, 6
SPEC = EnvSpec(
    (OBS,), "box", ACTIONS, action_shape=(ACTIONS,), action_low=(-1.0,) * ACTIONS, action_high=(1.0,) * ACTIONS
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=1_000_000, help="transitions in the dataset")
    parser.add_argument(
        "--updates", type=int, default=200_000, help="updates of a single seed; 16 seeds do a quarter each"
    )
    parser.add_argument("--compile", default="on", choices=["on", "off"])


def measure(args: argparse.Namespace) -> dict[str, Any]:
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = random_rows(Path(folder) / "rows.npz", args.rows)
        for seeds, updates in ((1, args.updates), (16, args.updates // 4)):
            rates[f"IQL x {seeds}"] = iql(data, seeds, updates, args, Path(folder))
    for learner, seeds in product((SACAlgorithm, TD3Algorithm, REDQAlgorithm), (1, 16)):
        rates[f"{learner.__name__} x {seeds}"] = on_replay(learner, seeds, args)
    return summary(rates, args)


def summary(rates: dict[str, float], args: argparse.Namespace) -> dict[str, Any]:
    return {
        "what": "Seed-updates per second, batch 256, networks 256-256, 17 observations, 6 actions",
        "result": "; ".join(f"{name}: {rate:,.0f}" for name, rate in rates.items()),
        "goal": "IQL x 1: 3,500; IQL x 16: 30,000; SAC x 1: 3,000; SAC x 16: 30,000",
        "rates": rates,
        "commands": [f"python benchmarks/speed.py throughput --updates {args.updates} --rows {args.rows}"],
    }


def random_rows(path: Path, rows: int) -> Path:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((rows, OBS), dtype=np.float32)
    ends = np.arange(rows) % 1000 == 999
    next_obs = np.roll(obs, -1, axis=0) + ends[:, None].astype(
        np.float32
    )  # differs from the next episode's first observation
    np.savez(
        path, obs=obs, next_obs=next_obs, actions=rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32),
        rewards=rng.standard_normal(rows, dtype=np.float32), dones=np.zeros(rows), truncated=ends,
    )  # fmt: skip
    return path


def iql(data: Path, seeds: int, updates: int, args: argparse.Namespace, folder: Path) -> float:
    """Median over log intervals, which leaves out startup and compilation."""
    run = folder / f"run{seeds}"
    command = ["train", "iql", "--dataset", str(data), "--steps", str(updates), "--device", args.device,
               "--compile", args.compile, "--output", str(run), "--quiet", "--json"]  # fmt: skip
    command += ["--seed", "0"] if seeds == 1 else ["--seeds", f"0-{seeds - 1}"]
    done = subprocess.run([sys.executable, "-m", "rl_training.cli", *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    log = (run if seeds == 1 else run / "seed_0") / "metrics.jsonl"
    rates = [json.loads(line)["updates_per_second"] for line in log.read_text().splitlines()]
    return seeds * statistics.median(rates)


def on_replay(learner: type[Learner], seeds: int, args: argparse.Namespace) -> float:
    """Updates per second, summed over seeds, of `Updater.run` on a full replay buffer."""
    torch.set_float32_matmul_precision("high")
    learners = [learner.build(SPEC).to(args.device) for _ in range(seeds)]
    members = seeds if seeds > 1 else None
    replay = ReplayBuffer(100_000, SPEC, device=args.device, members=members)
    lead = (100_000,) if members is None else (members, 100_000)
    replay.add({name: torch.zeros(*lead, *column.shape[len(lead) :], device=args.device) + 0.1
              for name, column in replay.columns.items()})  # fmt: skip
    updater = Updater(learners, compile=args.compile == "on", capture=args.device.startswith("cuda"))
    count = 4096 if args.device.startswith("cuda") else 100
    updater.run(replay, count // 4)
    synchronize(args.device)
    start = time.perf_counter()
    updater.run(replay, count)
    synchronize(args.device)
    return seeds * count / (time.perf_counter() - start)


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
