"""Cal-QL and CQL, offline then online: how far the return drops when online training begins.

python benchmarks/fine_tuning.py --data DIR [--seeds 0 1 2] [--jobs N] > benchmarks/results/fine_tuning.json

Two tasks with the same dataset (d3rlpy's Pendulum replay): Pendulum, and a sparse version with reward 1 while the pole
is upright and 0 elsewhere. The drop goes from the return after the offline phase to the lowest evaluation of the online
phase, as a fraction of the former's distance from a random policy.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from figure_cells import PENDULUM_REPLAY
from provenance import provenance

from rl_training.data import TransitionDataset, load_transition_dataset, save_npz
from rl_training.experiment.config.train_config import load_config, parse_config
from rl_training.experiment.run import run_training
from rl_training.statistics import interquartile_mean

OFFLINE, ONLINE, EVERY = 10_000, 5_000, 500
STANDING = 0.95  # cosine of the angle
TASKS = {"Pendulum-v1": -1_240.0, "StandingPendulum-v0": 3.0}  # returns of a random policy


class StandingPendulum(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return float(np.cos(self.unwrapped.state[0]) > STANDING)  # type: ignore[attr-defined]


def make_standing(**options: Any) -> gym.Env[Any, Any]:
    return StandingPendulum(gym.make("Pendulum-v1", **options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"holds {PENDULUM_REPLAY}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(args.jobs) as pool:
        jobs = [(task, algo, seed) for task in TASKS for algo in ("cal_ql", "cql") for seed in args.seeds]
        files = {task: str(rows_of(task, args.data, Path(folder))) for task in TASKS}
        pending = {job: pool.submit(curve, *job, files[job[0]], folder) for job in jobs}
        curves = {" ".join(map(str, job)): each.result() for job, each in pending.items()}
    print(json.dumps({**summary(curves, args.seeds), **provenance()}, indent=2))


def rows_of(task: str, data: Path, folder: Path) -> Path:
    dataset = load_transition_dataset(data / PENDULUM_REPLAY)
    if task.startswith("Standing"):
        standing = (dataset.columns["next_obs"][:, 0] > STANDING).float()
        dataset = TransitionDataset({**dataset.columns, "rewards": standing}, spec=dataset.spec)
    save_npz(dataset, folder / f"{task}.npz")
    return folder / f"{task}.npz"


def curve(task: str, algo: str, seed: int, file: str, folder: str) -> list[list[float]]:
    """[step, return] of every evaluation."""
    if task not in gym.registry:
        gym.register(task, entry_point=make_standing, max_episode_steps=200)
    values = {
        **load_config(f"{algo}/pendulum"), "env_id": task, "seed": seed, "dataset": file, "total_timesteps": OFFLINE,
        "online_steps": ONLINE, "eval_interval": EVERY, "eval_episodes": 20, "device": "cpu", "threads": 1,
        "output_dir": f"{folder}/{task}-{algo}-{seed}",
    }  # fmt: skip
    run = run_training(parse_config(values)).run_dir
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [[row["evaluation"]["step"], row["evaluation"]["return_mean"]] for row in rows if "evaluation" in row]
    print(f"{task} {algo} seed {seed}: {[round(value) for _, value in found]}", file=sys.stderr, flush=True)
    return found


def dip(curve: Sequence[Sequence[float]], random: float) -> float:
    before = next(value for step, value in reversed(curve) if step <= OFFLINE)
    lowest = min(value for step, value in curve if step > OFFLINE)
    return max(0.0, (before - lowest) / (before - random))


def summary(curves: dict[str, list[list[float]]], seeds: Sequence[int]) -> dict[str, Any]:
    dips = {
        f"{algo} on {task}": [dip(curves[f"{task} {algo} {seed}"], random) for seed in seeds]
        for task, random in TASKS.items()
        for algo in ("cal_ql", "cql")
    }
    return {
        "what": f"offline ({OFFLINE:,} updates) then online ({ONLINE:,} steps): how far the return dips",
        "result": "; ".join(f"{name} {interquartile_mean(each):.0%}" for name, each in dips.items()),
        "goal": "Cal-QL under 10%",
        "dips": dips,
        "curves": curves,
        "commands": ["python benchmarks/fine_tuning.py --data DATA"],
    }


if __name__ == "__main__":
    main()
