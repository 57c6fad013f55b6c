"""Off-policy estimates against the truth: rank correlation and coverage over checkpoints of several algorithms.

python benchmarks/ope_calibration.py TASK --data DIR --work DIR [--stage NAME ...] [--seed N] [--device cuda]

TASK is pendulum, cartpole or hopper. The stages are train, play, estimate and plot; each stores its results in --work
and skips those that are there already. `plot` writes benchmarks/results/ope_TASK.json and docs/pictures/ope_TASK.png.
Settings of the estimators were chosen with the checkpoints of seed 1; the stored results are of seed 0.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms import Learner
from rl_training.data import TransitionDataset, load_transition_dataset, save_npz
from rl_training.data.sampling import gather
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.runtime.checkpoints.format import step_name
from rl_training.types import Array

STAGES = ("train", "play", "estimate", "plot")
GAMMA = 0.99
EPISODES, HORIZON, EPISODE_SEED = 200, 600, 12345


@dataclass(frozen=True)
class Task:
    env_id: str
    data: str  # file below --data
    options: dict[str, Any]  # of every algorithm
    steps: dict[str, tuple[int, ...]]  # checkpoints of each algorithm
    algo_options: dict[str, dict[str, Any]] = field(default_factory=dict)


SMALL = {"hidden_sizes": [64, 64], "batch_size": 128, "learning_rate": 1e-3}
TASKS = {
    "pendulum": Task(
        "Pendulum-v1", "classic/pendulum_replay.h5", SMALL,
        {"bc": (100, 200, 500, 1000, 3000), "iql": (100, 300, 700, 1500, 4000), "td3_bc": (100, 300, 700, 1500, 4000),
         "cql": (100, 300, 700, 1500, 4000)},
        {"td3_bc": {"tau": 0.02}, "cql": {"cql_alpha": 1.0, "num_cql_samples": 4, "tau": 0.01}, "iql": {"tau": 0.01}},
    ),
    "cartpole": Task(
        "CartPole-v1", "classic/cartpole_replay.h5", SMALL,
        {"bc": (100, 200, 400, 700, 1000, 1500, 2200, 3000, 4000, 6000),
         "cql": (100, 200, 400, 700, 1000, 1500, 2200, 3000, 4000, 6000)},
        {"cql": {"cql_alpha": 1.0, "tau": 0.01}},
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES), dest="stages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    task, folder = TASKS[args.task], args.work / f"{args.task}-s{args.seed}"
    if "train" in args.stages:
        train(task, args.data / task.data, folder, args.seed, args.device)
    if "play" in args.stages:
        play(task, folder)


def train(task: Task, data: Path, folder: Path, seed: int, device: str) -> None:
    """Trains each algorithm once on half of the episodes and keeps the checkpoints of `task.steps`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "test.npz").exists():
        for name, part in zip(("train", "test"), halves(load_transition_dataset(data), seed), strict=True):
            save_npz(part, folder / f"{name}.npz")
    for algo, steps in task.steps.items():
        config = {
            "algo": algo, "env_id": task.env_id, "seed": seed, "dataset": str(folder / "train.npz"), "log": [],
            "total_timesteps": max(steps), "checkpoint_interval": 100, "keep_checkpoints": max(steps) // 100,
            "eval_interval": 0, "threads": 1, "device": device, "output_dir": str(folder / algo),
            "algo_kwargs": {**task.options, **task.algo_options.get(algo, {})},
        }  # fmt: skip
        run_training(parse_config(config))
        print(f"trained {algo}", flush=True)


def halves(dataset: TransitionDataset, seed: int) -> tuple[TransitionDataset, TransitionDataset]:
    """Splits the episodes at random."""
    episode = dataset.episode_ends.cumsum(0) - dataset.episode_ends.long()
    chosen = torch.randperm(int(episode[-1]) + 1, generator=torch.Generator().manual_seed(seed)) % 2 == 0
    masks = chosen[episode], ~chosen[episode]
    first, second = (
        TransitionDataset(
            gather(dataset.columns, mask.nonzero().squeeze(1)), episode_ends=dataset.episode_ends[mask],
            spec=dataset.spec,
        )
        for mask in masks
    )  # fmt: skip
    return first, second


def checkpoints(task: Task, folder: Path) -> dict[str, Path]:
    """Paths of the checkpoints by name, such as "iql 300"."""
    return {
        f"{algo} {step}": folder / algo / "checkpoints" / step_name(step)
        for algo, steps in task.steps.items()
        for step in steps
    }


def play(task: Task, folder: Path) -> None:
    """Discounted returns of played episodes, for the deterministic and the stochastic policy of every checkpoint."""
    file = folder / "truth.json"
    truth = json.loads(file.read_text()) if file.exists() else {}
    for name, path in checkpoints(task, folder).items():
        if name in truth:
            continue
        learner = load_agent(path).learner
        found = {}
        for kind in ("deterministic", "stochastic"):
            returns = discounted_returns(task.env_id, learner, deterministic=kind == "deterministic")
            found[kind] = [float(returns.mean()), float(returns.std(ddof=1) / len(returns) ** 0.5)]
        truth[name] = found
        file.write_text(json.dumps(truth, indent=2))
        print(name, {kind: f"{mean:.1f} +- {error:.1f}" for kind, (mean, error) in found.items()}, flush=True)


def discounted_returns(env_id: str, learner: Learner, *, deterministic: bool) -> Array:
    """Discounted returns of EPISODES episodes without a time limit; after HORIZON steps the discount is 0.002."""
    envs = gym.make_vec(env_id, num_envs=EPISODES, vectorization_mode="sync", max_episode_steps=HORIZON + 1)
    spec = spec_of_spaces(envs)
    generator = torch.Generator().manual_seed(0)
    obs, _ = envs.reset(seed=EPISODE_SEED)
    total, alive = np.zeros(EPISODES), np.ones(EPISODES)
    for step in range(HORIZON):
        with torch.no_grad():
            chosen = learner.act(torch.as_tensor(obs, dtype=torch.float32), deterministic=deterministic, generator=generator)
        actions = chosen.actions.numpy()
        obs, rewards, terminated, *_ = envs.step(actions if spec is None else spec[0] + (actions.clip(-1, 1) + 1) / 2 * (spec[1] - spec[0]))
        total += alive * GAMMA**step * rewards
        alive *= ~terminated
        if not alive.any():
            break
    return total


def spec_of_spaces(envs):
    space = envs.single_action_space
    return None if isinstance(space, gym.spaces.Discrete) else (space.low, space.high)


if __name__ == "__main__":
    main()
