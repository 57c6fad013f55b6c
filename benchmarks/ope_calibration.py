"""Off-policy estimates against the truth: rank correlation and coverage over checkpoints of several algorithms.

python benchmarks/ope_calibration.py TASK --data DIR --work DIR [--stage NAME ...] [--seed N] [--processes N]
python benchmarks/ope_calibration.py hopper --dataset hopper-medium-expert.hdf5 --work DIR --device cuda

TASK is pendulum, cartpole or hopper. The stages are train, play, estimate and plot; each stores its results in --work
and skips those that are there already.
`train` runs the algorithms side by side, and `play` the checkpoints, in --processes processes with one thread each;
their number does not change the results. `plot` writes benchmarks/results/ope_TASK.json and docs/pictures/ope_TASK.png.
Settings of the estimators were chosen with CartPole of seeds 0 and 1 and Pendulum of seed 1. Stored results are of the
default seed, 2 for CartPole and 0 for the others.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ope_scores import calibration, save_plot
from provenance import provenance

from rl_training.algorithms import Learner
from rl_training.data import TransitionDataset, load_transition_dataset, save_npz
from rl_training.data.sampling import gather
from rl_training.envs.device.base import TensorEnv
from rl_training.envs.device.classic import CartPole, Pendulum
from rl_training.envs.device.draws import Draws
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.packaged import load_config, packaged_configs
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.ope import rank_policies
from rl_training.experiment.ope.fitting import MEMBERS, UPDATES
from rl_training.experiment.ope.ranking import ESTIMATORS
from rl_training.experiment.run import run_training
from rl_training.processes import end_with_parent, usable_cores
from rl_training.runtime.checkpoints.format import step_name
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState
from rl_training.types import Array

KINDS = ("deterministic", "stochastic")
STAGES = ("train", "play", "estimate", "plot")
GAMMA, SAMPLES = 0.99, 2  # sampled actions per state
RESULTS, PICTURES = Path(__file__).parent / "results", Path(__file__).parents[1] / "docs" / "pictures"
EPISODES, HORIZON, EPISODE_SEED = 200, 600, 12345


@dataclass(frozen=True)
class Task:
    env_id: str
    data: str  # file below --data
    steps: dict[str, tuple[int, ...]]  # checkpoints of each algorithm (its config of this task) or packaged config
    goal: float = 0.7  # rank correlation
    seed: int = 0
    env: TensorEnv | None = None  # the environment as batched PyTorch, which plays faster


LENGTHS = (100, 300, 700, 1_500, 3_000)
EARLY = (20, 100, 300, 1_000, 3_000)
LONG = (2_000, 5_000, 10_000, 20_000, 50_000)
TASKS = {
    "pendulum": Task(
        "Pendulum-v1", "classic/pendulum_replay.h5",
        {"bc": LENGTHS, "iql": LENGTHS, "td3_bc": LENGTHS, "cql": LENGTHS}, env=Pendulum(),
    ),
    "cartpole": Task(
        "CartPole-v1", "classic/cartpole_replay.h5",
        {"bc": (10, 30, 60, 100, 200), "iql": EARLY, "bcq": EARLY, "cql": (20, 100, 500, 1_500, 4_000)}, seed=2,
        env=CartPole(),
    ),
    "hopper": Task(
        "Hopper-v4", "locomotion/hopper-medium-expert.hdf5",
        {"bc": LONG, "iql": LONG, "iql/hopper_mixture": LONG, "td3_bc": LONG, "cql": LONG}, goal=0.5,
    ),
}  # fmt: skip
SMALL = {"hidden_sizes": [64, 64], "batch_size": 128, "learning_rate": 1e-3}  # of classic control


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--data", type=Path, default=Path(), metavar="DIR", help="holds classic/ and locomotion/")
    parser.add_argument("--dataset", type=Path, metavar="FILE", help="instead of the task's file below --data")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES), dest="stages")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of the stage estimate")
    parser.add_argument("--processes", type=int, default=usable_cores(), metavar="N", help="default: the CPU count")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.seed = TASKS[args.task].seed if args.seed is None else args.seed
    task, folder = TASKS[args.task], args.work / f"{args.task}-s{args.seed}"
    if "train" in args.stages:
        split(args.dataset or args.data / task.data, folder, args.seed)
        jobs = [(args.task, name, folder, args.seed, args.device) for name in task.steps]
        for name in in_processes(train, jobs, args.processes):
            print(f"trained {name}", flush=True)
    if "play" in args.stages:
        play(args.task, folder, args.processes)
    if "estimate" in args.stages:
        estimate(task, folder, args)
    if "plot" in args.stages:
        write_results(args.task, folder, args)


def in_processes(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], processes: int) -> Iterator[Any]:
    """Yields function(*job) of each job as it ends."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=start_worker) as pool:
        try:
            for future in as_completed([pool.submit(function, *job) for job in jobs]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def start_worker() -> None:
    end_with_parent(signalled=False)
    torch.set_num_threads(1)


def split(data: Path, folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "test.npz").exists():
        for name, part in zip(("train", "test"), halves(load_transition_dataset(data), seed), strict=True):
            save_npz(part, folder / f"{name}.npz")


def train(task_name: str, name: str, folder: Path, seed: int, device: str) -> str:
    """Trains an algorithm on half of the episodes and keeps the checkpoints of `task.steps`."""
    task, output, (algo, *_) = TASKS[task_name], output_of(folder, name), name.split("/")
    steps, interval = task.steps[name], math.gcd(*task.steps[name])
    name = name if "/" in name else f"{algo}/{task_name}"
    packaged = load_config(name) if name in packaged_configs() else {}
    options = {**({} if task.env is None else SMALL), **packaged.get("algo_kwargs", {})}
    config = {
        **packaged, "algo": algo, "algo_kwargs": options, "env_id": task.env_id, "seed": seed, "log": [],
        "dataset": str(folder / "train.npz"), "total_timesteps": max(steps), "checkpoint_interval": interval,
        "keep_checkpoints": max(steps) // interval, "eval_interval": 0, "threads": 1, "device": device,
        "output_dir": str(output),
    }  # fmt: skip
    run_training(parse_config(config))
    return output.name


def output_of(folder: Path, name: str) -> Path:
    return folder / name.replace("/", "_")


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
        f"{name} {step}": output_of(folder, name) / "checkpoints" / step_name(step)
        for name, steps in task.steps.items()
        for step in steps
    }


def play(task_name: str, folder: Path, processes: int) -> None:
    """Stores the played returns of every checkpoint in truth.json."""
    file, paths = folder / "truth.json", checkpoints(TASKS[task_name], folder)
    truth = json.loads(file.read_text()) if file.exists() else {}
    jobs = [(task_name, name, path) for name, path in paths.items() if name not in truth]
    for name, found in in_processes(played_returns, jobs, processes):
        truth[name] = found
        file.write_text(json.dumps({name: truth[name] for name in paths if name in truth}, indent=2))
        print(name, {kind: f"{mean:.1f} +- {error:.1f}" for kind, (mean, error) in found.items()}, flush=True)


def played_returns(task_name: str, name: str, path: Path) -> tuple[str, dict[str, list[float]]]:
    """Mean and standard error of discounted returns, for the deterministic and the stochastic policy."""
    task, learner, found = TASKS[task_name], load_agent(path).learner, {}
    played = discounted_returns if task.env is None else batched_returns
    for kind in KINDS:
        returns = played(task, learner, deterministic=kind == "deterministic")
        found[kind] = [float(returns.mean()), float(returns.std(ddof=1) / len(returns) ** 0.5)]
    return name, found


@torch.no_grad()
def batched_returns(task: Task, learner: Learner, *, deterministic: bool) -> Array:
    """`discounted_returns` by an environment as batched PyTorch."""
    assert task.env is not None
    env, generator = task.env, torch.Generator().manual_seed(EPISODE_SEED)
    draws = Draws.of(EPISODE_SEED, torch.arange(EPISODES))
    state, total, alive = env.initial(draws), torch.zeros(EPISODES), torch.ones(EPISODES)
    for step in range(HORIZON):
        actions = learner.act(env.observe(state), deterministic=deterministic, generator=generator).actions
        state, rewards, terminated = env.step(state, actions, draws)
        total += alive * GAMMA**step * rewards
        alive *= ~terminated
    return total.numpy()


@torch.no_grad()
def discounted_returns(task: Task, learner: Learner, *, deterministic: bool) -> Array:
    """Discounted returns of EPISODES episodes without a time limit; after HORIZON steps the discount is 0.002."""
    envs = gym.make_vec(task.env_id, num_envs=EPISODES, vectorization_mode="sync", max_episode_steps=HORIZON + 1)
    low, high = envs.single_action_space.low, envs.single_action_space.high
    generator = torch.Generator().manual_seed(EPISODE_SEED)
    obs, _ = envs.reset(seed=EPISODE_SEED)
    total, alive = np.zeros(EPISODES), np.ones(EPISODES)
    for step in range(HORIZON):
        chosen = learner.act(torch.as_tensor(obs).float(), deterministic=deterministic, generator=generator).actions
        obs, rewards, terminated, *_ = envs.step(low + (chosen.numpy() + 1) / 2 * (high - low))
        total += alive * GAMMA**step * rewards
        alive *= ~terminated
        if not alive.any():
            break
    return total


class ShowUpdates(Callback):
    interval = 200

    def on_step_end(self, state: TrainerState) -> None:
        if state.passed(self.interval):
            print(f"{state.global_step} updates", flush=True)


def estimate(task: Task, folder: Path, args: argparse.Namespace) -> None:
    """Ranks all checkpoints by every estimator, on the half of the episodes that they were not trained on."""
    file = folder / "estimates.json"
    if file.exists():
        return
    paths = checkpoints(task, folder)
    found = rank_policies(
        list(paths.values()), folder / "test.npz", updates=args.updates, members=args.members, action_samples=SAMPLES,
        seed=args.seed, device=args.device, callbacks=[ShowUpdates()], gamma=GAMMA,
    )  # fmt: skip
    by_path = {each.run_dir: each.to_json() for each in found}
    file.write_text(json.dumps({name: by_path[path] for name, path in paths.items()}, indent=2))


def write_results(name: str, folder: Path, args: argparse.Namespace) -> None:
    """Writes rank correlation and coverage of each estimator, and the plot of estimates against truth."""
    truth, estimates = (json.loads((folder / file).read_text()) for file in ("truth.json", "estimates.json"))
    rows = [
        {
            "checkpoint": checkpoint, "truth": truth[checkpoint]["stochastic"][0],
            "truth_error": truth[checkpoint]["stochastic"][1], **found["estimates"], "warnings": found["warnings"],
        }
        for checkpoint, found in estimates.items()
    ]  # fmt: skip
    scores = {kind: calibration(rows, kind) for kind in ESTIMATORS}
    shown = (
        f"{kind} {score['rank_correlation']:.2f} over {score['checkpoints']} checkpoints, "
        + (f"{score['coverage']:.0%} of {score['intervals']} intervals" if score["intervals"] else "no interval")
        for kind, score in scores.items()
        if score["checkpoints"] > 1
    )
    first = next(iter(estimates.values()))
    result = {
        "what": f"off-policy estimates of {len(rows)} checkpoints on {TASKS[name].env_id} against played returns",
        "result": "rank correlation, and truth within the 95% interval: " + "; ".join(shown),
        "goal": f"rank correlation at least {TASKS[name].goal}, coverage at least 80%",
        "picture": f"ope_{name}.png", "estimators": scores, "gamma": GAMMA, "updates": first["updates"],
        "members": first["members"], "seed": args.seed, "episodes_played": EPISODES,
        "episodes_of_data": first["episodes"], "checkpoints": rows,
        "commands": [f"python benchmarks/ope_calibration.py {name} --data DATA --work WORK "
                     f"--updates {first['updates']} --members {first['members']}"],
    }  # fmt: skip
    (RESULTS / f"ope_{name}.json").write_text(json.dumps({**result, **provenance()}, indent=2) + "\n")
    save_plot(rows, scores, TASKS[name].env_id, PICTURES / f"ope_{name}.png")
    print(result["result"])


if __name__ == "__main__":
    main()
