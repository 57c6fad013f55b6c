"""How fast, and in how much memory, a million transitions are read, given returns-to-go and inspected.

    python benchmarks/data_speed.py [--rows 1000000] [--json FILE]

Writes a D4RL-like HDF5 file of HalfCheetah's shape (17 numbers seen, 6 acted, successors stored, in float32) to a
temporary folder. Each measurement is a process of its own; memory is its peak above what it held before reading.
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
from provenance import provenance

OBS, ACTIONS, EPISODE = 17, 6, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)  # the file, in a process of its own
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = {"rows": options.rows, **provenance()}
        for successors in (True, False):
            file = Path(folder) / "data.hdf5"
            write(file, options.rows, successors=successors)
            name = "successors stored" if successors else "successors derived"
            result[name] = json.loads(subprocess.check_output([sys.executable, __file__, "--measure", str(file)]))
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


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
    from rl_training.data import inspect_columns, load_transition_dataset, read_columns

    load_transition_dataset(small_file(path))  # imports what reading imports
    before, began = peak_memory(), time.perf_counter()
    dataset = load_transition_dataset(path)
    seconds, held = time.perf_counter() - began, peak_memory() - before
    size = sum(column.numel() * column.element_size() for column in dataset.columns.values())
    began = time.perf_counter()
    dataset.with_discounted_returns_to_go(0.99)
    returns = time.perf_counter() - began
    del dataset
    stored = read_columns(path)
    began = time.perf_counter()
    inspect_columns(stored)
    return {
        "load_seconds": seconds, "columns_bytes": size, "peak_over_columns": held / size,
        "returns_to_go_seconds": returns, "inspect_seconds": time.perf_counter() - began,
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
