"""How fast, and in how much memory, a million transitions are read, given returns-to-go and checked.

python benchmarks/data_speed.py [--rows 1000000] > benchmarks/results/data_speed.json

Writes D4RL-like HDF5 files of HalfCheetah's shape (17 numbers seen, 6 acted, in float32) to a temporary folder, with
successors and without, which are then derived. Each measurement is a process of its own, on a file just written; memory
is how much its peak rises by loading; `data check` is timed whole, the best of three.
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
from provenance import provenance

OBS, ACTIONS, EPISODE = 17, 6, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the file, in a process of its own
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            name: measured_apart(Path(folder) / "data.hdf5", options.rows, successors=name == "stored")
            for name in ("stored", "derived")
        }
    print(json.dumps({**summary(kinds, options.rows), **provenance()}, indent=2))


def measured_apart(file: Path, rows: int, *, successors: bool) -> dict[str, float]:
    write(file, rows, successors=successors)
    found: dict[str, float] = json.loads(subprocess.check_output([sys.executable, __file__, "--measure", str(file)]))
    return {**found, "check_seconds": min(check_seconds(file) for _ in range(3))}


def check_seconds(file: Path) -> float:
    began = time.perf_counter()
    subprocess.run([*COMMAND, "data", "check", str(file)], check=True, capture_output=True)
    return time.perf_counter() - began


def summary(kinds: dict[str, dict[str, float]], rows: int) -> dict[str, Any]:
    told = [
        f"successors {name}: loaded in {each['load_seconds']:.2f} s and {each['peak_over_columns']:.2f} times the "
        f"columns' size, returns-to-go in {each['returns_to_go_seconds']:.2f} s, "
        f"`data check` {each['check_seconds']:.1f} s"
        for name, each in kinds.items()
    ]
    return {
        "what": f"{rows:,} HDF5 rows: reading and checking",
        "result": "; ".join(told),
        "goal": "loaded under 10 s and 1.3 times, returns-to-go under 0.2 s, `data check` under 5 s",
        "measured": kinds,
        "commands": ["python benchmarks/data_speed.py"],
    }


def write(path: Path, rows: int, *, successors: bool) -> None:
    """Random walks, a new one every thousand rows."""
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


def measure(path: Path) -> dict[str, float]:
    from rl_training.data import load_transition_dataset

    load_transition_dataset(small_file(path))  # imports what reading imports
    before, began = peak_memory(), time.perf_counter()
    dataset = load_transition_dataset(path)
    seconds, held = time.perf_counter() - began, peak_memory() - before
    size = sum(column.numel() * column.element_size() for column in dataset.columns.values())
    began = time.perf_counter()
    dataset.with_discounted_returns_to_go(0.99)
    returns = time.perf_counter() - began
    return {
        "load_seconds": seconds, "columns_bytes": size, "peak_over_columns": held / size,
        "returns_to_go_seconds": returns,
    }  # fmt: skip


def small_file(path: Path) -> Path:
    small = path.with_name("small.hdf5")
    write(small, EPISODE, successors=True)
    return small


def peak_memory() -> int:
    """The most bytes this process has held (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
