"""Trains CORL's CQL on a D4RL-like HDF5 file: CORL's networks, settings and preprocessing, its update made faster.

python benchmarks/peer_corl.py train --corl DIR --data hopper-medium.hdf5 --env Hopper-v4 --out corl.json
python benchmarks/peer_corl.py play --corl DIR --data hopper-medium.hdf5 --env Hopper-v4 --out corl.json --episodes 100
python benchmarks/peer_corl.py check --corl DIR --data hopper-medium.hdf5

DIR is a clone of CORL's repository. On a GPU, twenty updates are one CUDA graph. `train` writes the normalised scores
of all evaluations and a state beside --out, from which the same command continues. `play` plays the policies of that
state. `check` compares the fast update with that of CORL's own class on the same batches and random numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import h5py
import numpy as np
import torch
from equal_peers.corl_source import source
from peer_corl_update import ALPHA, CRITIC_RATE, GAMMA, POLICY_RATE, SAMPLES, TAU, Columns, FusedCQL, Noise

from rl_training.data import normalized_score

ENVIRONMENTS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")  # those of the settings and reference returns
BATCH, PER_GRAPH, EPISODES, WARM_UPS = 256, 20, 10, 3


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    module = source(args.corl, "cql")
    columns, *scale = read(module, args.data, args.scaled_rewards)
    args.run(args, module, columns, scale)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train_options = commands.add_parser("train", help="train seeds side by side")
    play_options = commands.add_parser("play", help="play the policies of a training")
    check_options = commands.add_parser("check", help="compare the fast update with CORL's own")
    for each, run in ((train_options, train), (play_options, play_stored), (check_options, check)):
        each.set_defaults(run=run)
        each.add_argument("--corl", type=Path, required=True, metavar="DIR", help="clone of CORL's repository")
        each.add_argument("--data", type=Path, required=True, metavar="FILE", help="HDF5 file with D4RL's columns")
        each.add_argument(
            "--scaled-rewards", metavar="NAME", help="scale rewards as CORL does for NAME, such as hopper"
        )
    for each in (train_options, check_options):
        each.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N")
    for each in (train_options, play_options):
        each.add_argument("--env", required=True, choices=ENVIRONMENTS, help="environment of the evaluations")
        each.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file of the training")
        each.add_argument("--episodes", type=positive, default=EPISODES, metavar="N", help="episodes of an evaluation")
    train_options.add_argument("--steps", type=positive, default=1_000_000, metavar="N", help="updates")
    train_options.add_argument(
        "--every", type=positive, default=100_000, metavar="N", help="updates between evaluations"
    )
    train_options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    check_options.add_argument("--updates", type=int, nargs="+", default=[1, 10, 30], metavar="N")
    return parser.parse_args()


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def read(module: ModuleType, file: Path, scaled: str | None) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The columns after CORL's preprocessing, and the mean and std of observations."""
    names = ("observations", "actions", "rewards", "next_observations", "terminals")
    with h5py.File(file) as stored:
        data = {name: stored[name][:] for name in names}
    if scaled is not None:
        module.modify_reward(data, scaled)
    mean, std = module.compute_mean_std(data["observations"], eps=1e-3)
    for name in ("observations", "next_observations"):
        data[name] = module.normalize_states(data[name], mean, std)
    return [data[name] for name in names], mean, std


def trainer(module: ModuleType, seed: int, obs_dim: int, action_dim: int) -> Any:
    torch.manual_seed(seed)
    critics = [module.FullyConnectedQFunction(obs_dim, action_dim, orthogonal_init=True) for _ in range(2)]
    actor = module.TanhGaussianPolicy(obs_dim, action_dim, 1.0, orthogonal_init=True)
    adam = [torch.optim.Adam(each.parameters(), CRITIC_RATE) for each in critics]
    return module.ContinuousCQL(
        critics[0], adam[0], critics[1], adam[1], actor, torch.optim.Adam(actor.parameters(), POLICY_RATE),
        target_entropy=-float(action_dim), discount=GAMMA, policy_lr=POLICY_RATE, qf_lr=CRITIC_RATE,
        soft_target_update_rate=TAU, bc_steps=0, cql_n_actions=SAMPLES, cql_alpha=ALPHA,
    )  # fmt: skip


def train(
    args: argparse.Namespace, module: ModuleType, data: Sequence[np.ndarray], scale: Sequence[np.ndarray]
) -> None:
    torch.set_float32_matmul_precision("high")  # TF32 products, as rl_training uses on a GPU
    learner = FusedCQL(trainers(args, module, data), args.device)
    columns = Columns(*(torch.as_tensor(each, dtype=torch.float32, device=args.device) for each in data))
    state = args.out.with_suffix(".pt")
    result: dict[str, Any] = {"seeds": args.seeds, "steps": 0, "seconds": 0.0, "curve": []}
    if state.exists():
        learner.load(torch.load(state, map_location=args.device, weights_only=True))
        result = json.loads(args.out.read_text())
    torch.manual_seed(args.seeds[0] + result["steps"])
    step, warm_ups, count = stepper(learner, columns, len(args.seeds), args.device)
    result["steps"] += warm_ups
    start = time.perf_counter()
    while result["steps"] < args.steps:
        step()
        result["steps"] += count
        if result["steps"] % args.every < count:
            result["curve"].append([result["steps"] // args.every * args.every, scores(args, learner, scale)])
            result["seconds"], start = result["seconds"] + time.perf_counter() - start, time.perf_counter()
            torch.save(learner.state(), state)
            args.out.write_text(json.dumps(result, indent=2) + "\n")
            print(
                f"{result['steps']:,} updates, {result['seconds']:.0f} s, scores {result['curve'][-1][1]}", flush=True
            )


def play_stored(
    args: argparse.Namespace, module: ModuleType, data: Sequence[np.ndarray], scale: Sequence[np.ndarray]
) -> None:
    state = args.out.with_suffix(".pt")
    if not (state.exists() and args.out.exists()):
        raise SystemExit(f"{args.out} and {state} are needed; run train with this --out first")
    args.seeds = json.loads(args.out.read_text())["seeds"]
    learner = FusedCQL(trainers(args, module, data), "cpu")
    learner.load(torch.load(state, map_location="cpu", weights_only=True))
    print(f"scores {scores(args, learner, scale)}, {args.episodes} episodes each")


def trainers(args: argparse.Namespace, module: ModuleType, data: Sequence[np.ndarray]) -> list[Any]:
    return [trainer(module, seed, data[0].shape[1], data[1].shape[1]) for seed in args.seeds]


def stepper(learner: FusedCQL, data: Columns, seeds: int, device: str) -> tuple[Callable[[], None], int, int]:
    """A function that updates, how many updates were done to warm up, and how many the function does."""
    rows, dims = data.actions.shape
    loss = torch.compile(learner.loss) if device != "cpu" else learner.loss

    def update() -> None:
        batch = torch.randint(rows, (seeds, BATCH), device=device)
        learner.update(Columns(*(each[batch] for each in data)), Noise.draw(seeds, BATCH, dims, device), loss)

    if device == "cpu":
        return update, 0, 1
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            update()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(PER_GRAPH):
            update()
    return graph.replay, WARM_UPS, PER_GRAPH


def scores(args: argparse.Namespace, learner: FusedCQL, scale: Sequence[np.ndarray]) -> list[float]:
    """The mean normalised score of each seed's deterministic policy."""
    found = []
    for number, seed in enumerate(args.seeds):
        actor = [each[number].detach().double().cpu().numpy() for each in learner.actor]
        starts = range(args.episodes * seed, args.episodes * (seed + 1))
        returns = [play(args.env, actor, scale, start) for start in starts]
        found.append(round(normalized_score(args.env, float(np.mean(returns))), 2))
    return found


def play(env_id: str, actor: Sequence[np.ndarray], scale: Sequence[np.ndarray], seed: int) -> float:
    """The return of one episode."""
    env, total, over = gym.make(env_id), 0.0, False
    obs, _ = env.reset(seed=seed)
    while not over:
        hidden = (obs - scale[0]) / scale[1]
        for number in range(0, len(actor), 2):
            hidden = hidden @ actor[number] + actor[number + 1][0]
            if number + 2 < len(actor):
                hidden = np.maximum(hidden, 0)
        mean = hidden[: len(hidden) // 2]
        obs, reward, terminated, truncated, _ = env.step(np.tanh(mean).astype(np.float32))
        total, over = total + float(reward), terminated or truncated
    env.close()
    return total


def check(
    args: argparse.Namespace, module: ModuleType, data: Sequence[np.ndarray], scale: Sequence[np.ndarray]
) -> None:
    """Prints the largest difference of a parameter, in float64: in float32, Adam amplifies the rounding."""
    torch.set_default_dtype(torch.float64)
    theirs = trainers(args, module, data)
    ours, seeds = FusedCQL(theirs, "cpu"), len(args.seeds)
    columns = Columns(*(torch.as_tensor(each, dtype=torch.float64) for each in data))
    rows, dims = columns.actions.shape
    for number in range(1, max(args.updates) + 1):
        torch.manual_seed(number)
        batch, noise = torch.randint(rows, (seeds, BATCH)), Noise.draw(seeds, BATCH, dims, "cpu")
        ours.update(Columns(*(each[batch] for each in columns)), noise)
        for seed, each in enumerate(theirs):
            own = [column[batch[seed]].view(BATCH, -1) for column in columns]
            own_update(each, own, Noise(*(numbers[seed] for numbers in noise)))
        if number in args.updates:
            print(f"{number} updates: {max(ours.differences(theirs)):.1e}")


def own_update(trainer: Any, batch: Sequence[torch.Tensor], noise: Noise) -> None:
    """One update by CORL's class with given random numbers."""
    normal = iter((noise.policy, noise.target, noise.current, noise.following))

    def rsample(distribution: torch.distributions.TransformedDistribution, shape: Any = ()) -> torch.Tensor:
        base: Any = distribution.base_dist
        return distribution.transforms[0](base.loc + base.scale * next(normal))

    with (
        patch.object(torch.distributions.TransformedDistribution, "rsample", rsample),
        patch.object(torch.Tensor, "uniform_", lambda tensor, *bounds: tensor.copy_(noise.uniform)),
    ):
        trainer.train(batch)


if __name__ == "__main__":
    main()
