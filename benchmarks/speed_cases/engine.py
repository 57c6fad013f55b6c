"""Overhead of the engine over a plain loop of `Updater.update`: IQL on CPU, 17 observations, 6 actions, 100,000 rows.

A run with default logging, progress and checkpoints pauses after each tenth. A plain loop then does as many sampled
updates in the same process, so that a slow machine slows both. The first tenth is a warm-up. Each later tenth includes
writing the checkpoint that was requested at the end of the one before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.experiment.config.registry import build_learner, get_algorithm_spec
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState
from rl_training.statistics import bootstrap_interval, interquartile_mean

OBS, ACTIONS, ROWS, BLOCKS = 17, 6, 100_000, 10


class Alternate(Callback):
    """Times each block of the run, and as many updates of the plain loop after it."""

    def __init__(self, block: int, bare_loop: Callable[[int], None]) -> None:
        self.interval, self.bare_loop = block, bare_loop
        self.engine_seconds: list[float] = []
        self.bare_seconds: list[float] = []
        self._resumed = 0.0

    def on_train_start(self, state: TrainerState) -> None:
        self._resumed = time.perf_counter()

    def on_step_end(self, state: TrainerState) -> None:
        if not state.passed(self.interval):
            return
        paused = time.perf_counter()
        self.bare_loop(self.interval)
        resumed = time.perf_counter()
        self.engine_seconds.append(paused - self._resumed)
        self.bare_seconds.append(resumed - paused)
        self._resumed = resumed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--updates", type=int, default=20_000, metavar="N", help="length of the run (default: 20000)")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    updates = args.updates
    if updates % BLOCKS:
        raise SystemExit(f"--updates must be a multiple of {BLOCKS}, got {updates}")
    with tempfile.TemporaryDirectory() as folder:
        file = write_random_rows(Path(folder) / "rows.npz")
        timer = Alternate(updates // BLOCKS, bare_loop(load_transition_dataset(file)))
        config = {"algo": "iql", "dataset": file, "total_timesteps": updates, "output_dir": Path(folder) / "run"}
        run_training(parse_config({**config, "device": "cpu"}), callbacks=[timer], quiet=False)
    pairs = list(zip(timer.engine_seconds, timer.bare_seconds, strict=True))[1:]
    ratios = [engine / bare for engine, bare in pairs]
    middle, (low, high) = interquartile_mean(ratios), bootstrap_interval(ratios)
    return {
        "what": f"time of the engine over a bare loop of Updater.update, IQL, {updates:,} updates on CPU",
        "result": f"{middle - 1:+.1%} [{low - 1:+.1%}, {high - 1:+.1%}]",
        "goal": "under +5%",
        "interquartile_mean": middle,
        "interval_95": [low, high],
        "smallest_and_largest": [min(ratios), max(ratios)],
        "ratios": ratios,
        "bare_updates_per_second": updates // BLOCKS * len(pairs) / sum(bare for _, bare in pairs),
        "commands": [f"python benchmarks/speed.py engine --updates {updates}"],
    }


def write_random_rows(file: Path) -> Path:
    random = np.random.default_rng(0)
    np.savez(
        file,
        obs=random.standard_normal((ROWS, OBS), dtype=np.float32),
        next_obs=random.standard_normal((ROWS, OBS), dtype=np.float32),
        actions=random.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        rewards=random.standard_normal(ROWS, dtype=np.float32),
        dones=np.zeros(ROWS, dtype=np.float32),
    )
    return file


def bare_loop(dataset: TransitionDataset) -> Callable[[int], None]:
    options = get_algorithm_spec("iql").config_type()
    updater = build_learner("iql", dataset.spec, options).updater

    def loop(count: int) -> None:
        for _ in range(count):
            updater.update(dataset.sample(options.batch_size))

    return loop
