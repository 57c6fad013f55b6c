"""Seeds as processes side by side, one a core at most; asked to stop, each of them saves before it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess

from rl_training.experiment.config import TrainConfig
from rl_training.experiment.run import run_training
from rl_training.experiment.signals import caught_signals, hidden_from_ctrl_c

TICK = 0.1  # seconds between looks at the processes


def train_in_processes(configs: Sequence[TrainConfig], *, fresh: bool) -> tuple[set[int], int | None]:
    """The seeds that have written what they came to, all of them unless a signal asked to stop; and that signal."""
    processes: list[BaseProcess] = []
    with caught_signals() as caught:
        resource_tracker.ensure_running()  # which lets SIGINT through again as it starts
        waiting, asked = list(configs), 0
        while (running := [process for process in processes if process.is_alive()]) or (waiting and not caught):
            if waiting and not caught and len(running) < (os.cpu_count() or 1):
                processes.append(_start(waiting.pop(0), fresh))
                continue
            for _ in caught[asked:]:
                asked += 1
                for process in running:
                    process.terminate()
            time.sleep(TICK)
    codes = {config.seed: process.exitcode for config, process in zip(configs, processes, strict=False)}
    failed = [seed for seed, code in codes.items() if code]
    if failed and not caught:
        raise RuntimeError(f"seed {failed[0]} failed; its own message is above")
    return codes.keys() - failed, caught[0] if caught else None


def _start(config: TrainConfig, fresh: bool) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=_train_one, args=(config, fresh), daemon=True)
    with hidden_from_ctrl_c():
        process.start()
    return process


def _train_one(config: TrainConfig, fresh: bool) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # once it trains, it saves first
    try:
        run_training(config, fresh=fresh)
    except KeyboardInterrupt:  # asked for the second time
        sys.exit(128 + signal.SIGINT)
