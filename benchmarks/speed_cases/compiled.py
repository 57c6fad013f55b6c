"""Speed of compiled against eager updates of IQL on a CPU, both in one process, alternating."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch

from rl_training.algorithms import IQLAlgorithm, Updater
from rl_training.data import TransitionDataset
from rl_training.statistics import bootstrap_interval, interquartile_mean
from speed_cases.throughput import SPEC


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--updates", type=int, default=300, help="updates in a turn")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads for PyTorch")
    parser.add_argument("--rows", type=int, default=1_000_000)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(args.threads)
    data = rows(args.rows)
    eager, compiled = Updater([IQLAlgorithm.build(SPEC)]), Updater([IQLAlgorithm.build(SPEC)], compile=True)
    for updater in (eager, compiled):
        updater.run(data, 20)  # leaves compilation out of the measurement
    turns = [(seconds(eager, data, args.updates), seconds(compiled, data, args.updates)) for _ in range(args.turns)]
    ratios = [slow / fast for slow, fast in turns]
    low, high = bootstrap_interval(ratios)
    middle = interquartile_mean(ratios)
    rates = [args.updates / interquartile_mean(each) for each in zip(*turns, strict=True)]
    cores = len(os.sched_getaffinity(0))
    note = f"{cores} cores, {args.threads} thread(s) of torch, {args.turns} turns of {args.updates} updates each"
    return {
        "what": "IQL on a CPU, one seed: compiled updates against eager ones, batch 256, networks 256-256",
        "result": f"{middle:.2f} [{low:.2f}, {high:.2f}] times: {rates[1]:.0f} against {rates[0]:.0f} updates a second",
        "goal": "1.25 times",
        "note": note,
        "ratios": ratios,
        "commands": [f"taskset -c 0,1 python benchmarks/speed.py compiled --threads {args.threads}"],
    }


def rows(count: int) -> TransitionDataset:
    obs = torch.randn(count, *SPEC.obs_shape)
    columns = {"obs": obs, "actions": torch.rand(count, SPEC.action_dim) * 2 - 1, "rewards": torch.randn(count),
               "next_obs": obs + 0.1, "dones": torch.zeros(count), "truncated": torch.zeros(count)}  # fmt: skip
    return TransitionDataset(columns, spec=SPEC)


def seconds(updater: Updater, data: TransitionDataset, updates: int) -> float:
    start = time.perf_counter()
    updater.run(data, updates)
    return time.perf_counter() - start
