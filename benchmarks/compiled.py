"""How much faster compiled updates are than eager ones on a CPU: both in one process, in turns.

taskset -c 0,1 python benchmarks/compiled.py > benchmarks/results/compiled.json
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from provenance import provenance
from throughput import SPEC

from rl_training.algorithms import IQLAlgorithm, Updater
from rl_training.data import TransitionDataset
from rl_training.statistics import bootstrap_interval, interquartile_mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300, help="in a turn of each")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of torch; 1 is what the library chooses")
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    data = rows(asked.rows)
    eager, compiled = Updater([IQLAlgorithm.build(SPEC)]), Updater([IQLAlgorithm.build(SPEC)], compile=True)
    for updater in (eager, compiled):
        updater.run(data, 20)  # compiling does not count: it is earned back in a long run
    turns = [(seconds(eager, data, asked.updates), seconds(compiled, data, asked.updates)) for _ in range(asked.turns)]
    ratios = [slow / fast for slow, fast in turns]
    low, high = bootstrap_interval(ratios)
    middle = interquartile_mean(ratios)
    rates = [asked.updates / interquartile_mean(each) for each in zip(*turns, strict=True)]
    cores = len(os.sched_getaffinity(0))
    note = f"{cores} cores, {asked.threads} thread(s) of torch, {asked.turns} turns of {asked.updates} updates each"
    result = {
        "what": "IQL on a CPU, one seed: compiled updates against eager ones, batch 256, networks 256-256",
        "result": f"{middle:.2f} [{low:.2f}, {high:.2f}] times: {rates[1]:.0f} against {rates[0]:.0f} updates a second",
        "goal": "1.25 times",
        "note": note,
        "ratios": ratios,
        "commands": [f"taskset -c 0,1 python benchmarks/compiled.py --threads {asked.threads}"],
    }
    print(json.dumps({**result, **provenance()}, indent=2))


def rows(count: int) -> TransitionDataset:
    obs = torch.randn(count, *SPEC.obs_shape)
    columns = {"obs": obs, "actions": torch.rand(count, SPEC.action_dim) * 2 - 1, "rewards": torch.randn(count),
               "next_obs": obs + 0.1, "dones": torch.zeros(count), "truncated": torch.zeros(count)}  # fmt: skip
    return TransitionDataset(columns, spec=SPEC)


def seconds(updater: Updater, data: TransitionDataset, updates: int) -> float:
    began = time.perf_counter()
    updater.run(data, updates)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
