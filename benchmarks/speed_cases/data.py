"""Time and memory for loading a million transitions, computing returns-to-go and `data check`.

Writes D4RL-like HDF5 files with the shapes of HalfCheetah (17 observations, 6 actions, float32) to a temporary folder:
one with next observations, one from which they must be derived. Each file is measured in a new process. Memory is the
rise of the process's peak while loading. `data check` is the fastest of three whole processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from command_line import COMMAND

OBS, ACTIONS, EPISODE = 17, 6, 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # used by the new process


def measure(args: argparse.Namespace) -> dict[str, Any]:
    if args.measure:
        print(json.dumps(measure_file(args.measure)))
        raise SystemExit
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            name: measure_in_process(Path(folder) / "data.hdf5", args.rows, successors=name == "stored")
            for name in ("stored", "derived")
        }
    return summary(kinds, args.rows)


def measure_in_process(file: Path, rows: int, *, successors: bool) -> dict[str, float]:
    write(file, rows, successors=successors)
    command = [sys.executable, sys.argv[0], "data", "--measure", str(file)]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return {**found, "check_seconds": min(check_seconds(file) for _ in range(3))}


def check_seconds(file: Path) -> float:
    start = time.perf_counter()
    subprocess.run([*COMMAND, "data", "check", str(file)], check=True, capture_output=True)
    return time.perf_counter() - start


def summary(kinds: dict[str, dict[str, float]], rows: int) -> dict[str, Any]:
    parts = [
        f"successors {name}: loaded in {each['load_seconds']:.2f} s and {each['peak_over_columns']:.2f} times the "
        f"columns' size, returns-to-go in {each['returns_to_go_seconds']:.2f} s, "
        f"`data check` {each['check_seconds']:.1f} s"
        for name, each in kinds.items()
    ]
    return {
        "what": f"{rows:,} HDF5 rows: reading and checking",
        "result": "; ".join(parts),
        "goal": "loaded under 10 s and 1.3 times, returns-to-go under 0.2 s, `data check` under 5 s",
        "measured": kinds,
        "commands": ["python benchmarks/speed.py data"],
    }


def write(path: Path, rows: int, *, successors: bool) -> None:
    """Writes random walks of a thousand steps each."""
    import h5py

    rng = np.random.default_rng(0)
    walks = rng.normal(size=(rows // EPISODE, EPISODE + 1, OBS)).astype(np.float32).cumsum(1)
    with h5py.File(path, "w") as file:
        file["observations"] = walks[:, :-1].reshape(-1, OBS)
        if successors:
            file["next_observations"] = walks[:, 1:].reshape(-1, OBS)
        file["actions"] = rng.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32)
        file["rewards"] = rng.normal(size=rows).astype(np.float32)
        file["terminals"] = np.zeros(rows, bool)
        file["timeouts"] = np.arange(rows) % EPISODE == EPISODE - 1


def measure_file(path: Path) -> dict[str, float]:
    from rl_training.data import load_transition_dataset

    load_transition_dataset(small_file(path))  # imports everything that loading needs
    before, start = peak_memory(), time.perf_counter()
    dataset = load_transition_dataset(path)
    seconds, held = time.perf_counter() - start, peak_memory() - before
    size = sum(column.numel() * column.element_size() for column in dataset.columns.values())
    start = time.perf_counter()
    dataset.with_discounted_returns_to_go(0.99)
    returns = time.perf_counter() - start
    return {
        "load_seconds": seconds, "columns_bytes": size, "peak_over_columns": held / size,
        "returns_to_go_seconds": returns,
    }  # fmt: skip


def small_file(path: Path) -> Path:
    small = path.with_name("small.hdf5")
    write(small, EPISODE, successors=True)
    return small


def peak_memory() -> int:
    """Peak resident memory of this process in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
