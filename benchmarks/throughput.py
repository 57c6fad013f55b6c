"""Seed-updates per second on one machine: IQL through the command line, SAC, TD3 and REDQ alone; one seed and sixteen.

python benchmarks/throughput.py --device cuda > benchmarks/results/throughput.json
"""

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
from provenance import provenance

from rl_training.algorithms import Learner, REDQAlgorithm, SACAlgorithm, TD3Algorithm, Updater
from rl_training.data import ReplayBuffer
from rl_training.types import EnvSpec

OBS, ACTIONS = 17, 6
SPEC = EnvSpec(
    (OBS,), "box", ACTIONS, action_shape=(ACTIONS,), action_low=(-1.0,) * ACTIONS, action_high=(1.0,) * ACTIONS
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the dataset")
    parser.add_argument("--updates", type=int, default=200_000, help="of one seed; sixteen do a quarter of it each")
    parser.add_argument("--compile", default="on", choices=["on", "off"])
    asked = parser.parse_args()
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = random_rows(Path(folder) / "rows.npz", asked.rows)
        for seeds, updates in ((1, asked.updates), (16, asked.updates // 4)):
            rates[f"IQL x {seeds}"] = iql(data, seeds, updates, asked, Path(folder))
    for learner, seeds in product((SACAlgorithm, TD3Algorithm, REDQAlgorithm), (1, 16)):
        rates[f"{learner.__name__} x {seeds}"] = on_a_ring(learner, seeds, asked)
    print(json.dumps({**summary(rates, asked), **provenance()}, indent=2))


def summary(rates: dict[str, float], asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "what": "Seed-updates per second, batch 256, networks 256-256, 17 observations, 6 actions",
        "result": "; ".join(f"{name}: {rate:,.0f}" for name, rate in rates.items()),
        "goal": "IQL x 1: 3,500; IQL x 16: 30,000; SAC x 1: 3,000; SAC x 16: 30,000",
        "rates": rates,
        "commands": [f"python benchmarks/throughput.py --updates {asked.updates} --rows {asked.rows}"],
    }


def random_rows(path: Path, rows: int) -> Path:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((rows, OBS), dtype=np.float32)
    ends = np.arange(rows) % 1000 == 999
    next_obs = np.roll(obs, -1, axis=0) + ends[:, None].astype(np.float32)  # no bridge to the next episode
    np.savez(
        path, obs=obs, next_obs=next_obs, actions=rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32),
        rewards=rng.standard_normal(rows, dtype=np.float32), dones=np.zeros(rows), truncated=ends,
    )  # fmt: skip
    return path


def iql(data: Path, seeds: int, updates: int, asked: argparse.Namespace, folder: Path) -> float:
    """Through `rl-training train`: the median over log intervals, so that the start and its compiling do not count."""
    run = folder / f"run{seeds}"
    command = ["train", "iql", "--dataset", str(data), "--steps", str(updates), "--device", asked.device,
               "--compile", asked.compile, "--output", str(run), "--quiet", "--json"]  # fmt: skip
    command += ["--seed", "0"] if seeds == 1 else ["--seeds", f"0-{seeds - 1}"]
    done = subprocess.run([sys.executable, "-m", "rl_training.cli", *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    log = (run if seeds == 1 else run / "seed_0") / "metrics.jsonl"
    rates = [json.loads(line)["updates_per_second"] for line in log.read_text().splitlines()]
    return seeds * statistics.median(rates)


def on_a_ring(learner: type[Learner], seeds: int, asked: argparse.Namespace) -> float:
    """Seed-updates a second of `Updater.run` on a full ring."""
    torch.set_float32_matmul_precision("high")
    learners = [learner.build(SPEC).to(asked.device) for _ in range(seeds)]
    members = seeds if seeds > 1 else None
    ring = ReplayBuffer(100_000, SPEC, device=asked.device, members=members)
    lead = (100_000,) if members is None else (members, 100_000)
    ring.add({name: torch.zeros(*lead, *column.shape[len(lead) :], device=asked.device) + 0.1
              for name, column in ring.columns.items()})  # fmt: skip
    updater = Updater(learners, compile=asked.compile == "on", capture=asked.device.startswith("cuda"))
    count = 4096 if asked.device.startswith("cuda") else 100
    updater.run(ring, count // 4)
    finish(asked.device)
    began = time.perf_counter()
    updater.run(ring, count)
    finish(asked.device)
    return seeds * count / (time.perf_counter() - began)


def finish(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
