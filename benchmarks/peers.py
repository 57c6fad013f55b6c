"""Compares return and wall time with stable-baselines3 at equal settings, one thread each.

python benchmarks/peers.py --peer VENV/bin/python [--cells NAME ...] [--seeds 0 1 2 3 4] [--jobs N]

The peer is installed in its own venv. Each seed trains both libraries, in alternating order, so that a slow machine
slows both. Time is training time: neither evaluates, rl_training writes its checkpoints. One setting differs: the peer
updates epsilon after each step, rl_training after each collection. A cell's result goes to
benchmarks/results/peer_NAME.json after every seed, unless --steps is given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from command_line import SINGLE_THREADED, ask, shown
from figures import RESULTS, evaluate_command, write
from provenance import provenance

from rl_training.statistics import bootstrap_interval, interquartile_mean

Pairs: TypeAlias = "Mapping[str, Sequence[float]]"  # "ours" and "theirs", one number per seed
PEER = Path(__file__).with_name("peer_sb3.py")


@dataclass(frozen=True)
class Match:
    what: str
    env: str
    steps: int
    goal: str
    algo: str
    options: dict[str, Any]
    peer_algo: str
    peer_options: dict[str, Any]
    num_envs: int = 1


# Settings of RL Zoo: 128 updates after every 256 steps, the target network copied before them.
ZOO_DQN = {
    "learning_rate": 2.3e-3, "batch_size": 64, "gamma": 0.99, "buffer_size": 100_000, "learning_starts": 1_000,
}  # fmt: skip
DQN = {
    **ZOO_DQN, "hidden_sizes": [256, 256], "collect_steps": 256, "updates_per_collect": 128, "target_interval": 128,
    "tau": 1.0, "exploration_fraction": 0.16, "epsilon_end": 0.04, "max_grad_norm": 10.0,
}  # fmt: skip
SB3_DQN = {
    **ZOO_DQN, "train_freq": 256, "gradient_steps": 128, "target_update_interval": 10, "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04, "max_grad_norm": 10.0, "policy_kwargs": {"net_arch": [256, 256]},
}  # fmt: skip
# Settings of RL Zoo, with constant learning rates.
SAC = {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99, "buffer_size": 1_000_000, "learning_starts": 100}
CARTPOLE_PPO = {
    "learning_rate": 1e-3, "num_steps": 32, "batch_size": 256, "epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
    "clip_range": 0.2, "entropy_weight": 0.0,
}  # fmt: skip
LUNARLANDER_PPO = {
    "learning_rate": 3e-4, "num_steps": 1024, "batch_size": 64, "epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
    "clip_range": 0.2, "entropy_weight": 0.01,
}  # fmt: skip


def ppo(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "hidden_sizes": [64, 64], "value_weight": 0.5, "max_grad_norm": 0.5}


def sb3_ppo(options: dict[str, Any]) -> dict[str, Any]:
    """Networks and the other weights are the same by default."""
    names = {"num_steps": "n_steps", "epochs": "n_epochs", "entropy_weight": "ent_coef"}
    return {names.get(name, name): value for name, value in options.items()}


MATCHES = {
    "dqn_cartpole": Match(
        "DQN on CartPole-v1", "CartPole-v1", 50_000, "as good, 1.5 times as fast",
        "dqn", DQN, "DQN", SB3_DQN,
    ),
    "qr_dqn_cartpole": Match(
        "QR-DQN on CartPole-v1", "CartPole-v1", 50_000, "as good, 1.5 times as fast",
        "qr_dqn", {**DQN, "num_quantiles": 10, "adam_eps": 0.01 / 64}, "QRDQN",  # default of the peer
        {**SB3_DQN, "policy_kwargs": {"net_arch": [256, 256], "n_quantiles": 10}},
    ),
    "sac_pendulum": Match(
        "SAC on Pendulum-v1", "Pendulum-v1", 20_000, "as good, twice as fast",
        "sac", {**SAC, "hidden_sizes": [256, 256]}, "SAC", {**SAC, "policy_kwargs": {"net_arch": [256, 256]}},
    ),
    "ppo_cartpole": Match(
        "PPO on CartPole-v1", "CartPole-v1", 100_000, "as good, twice as fast",
        "ppo", ppo(CARTPOLE_PPO), "PPO", sb3_ppo(CARTPOLE_PPO), num_envs=8,
    ),
    "ppo_lunarlander": Match(
        "PPO on LunarLander-v3", "LunarLander-v3", 1_000_000, "as good, twice as fast",
        "ppo", ppo(LUNARLANDER_PPO), "PPO", sb3_ppo(LUNARLANDER_PPO), num_envs=16,
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, metavar="PYTHON", help="Python of the peer's venv")
    parser.add_argument("--cells", nargs="+", choices=MATCHES, default=list(MATCHES), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="seeds at the same time, one core each")
    parser.add_argument("--steps", type=int, metavar="N", help="fewer steps, for a trial; nothing is stored")
    parser.add_argument("--output", type=Path, default=Path("runs/peers"), metavar="DIR", help="directory of the runs")
    args = parser.parse_args()
    if not args.peer.is_file():
        parser.error(f"--peer: {args.peer} not found. Make a venv and install stable-baselines3 and sb3-contrib in it")
    for name in args.cells:
        result = trained_cell(name, args)
        print(f"{result['what']}: {result['result']}", flush=True)


def trained_cell(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Trains all seeds; the result is written after each, so that a stopped comparison keeps the seeds it has."""
    pairs: list[dict[str, Any]] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for trained in pool.map(lambda seed: pair(name, seed, args), args.seeds):
            pairs.append(trained)
            result = {**summary(matched(name, args), pairs, args.seeds), **provenance()}
            result["versions"] |= {f"peer's {each}": version for each, version in trained["theirs"]["versions"].items()}
            if args.steps is None:
                write(RESULTS / f"peer_{name}.json", result)
    return result


def matched(name: str, args: argparse.Namespace) -> Match:
    return replace(MATCHES[name], steps=args.steps or MATCHES[name].steps)


def pair(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    match, order = matched(name, args), ("ours", "theirs") if seed % 2 else ("theirs", "ours")
    run = args.output / name / f"seed_{seed}"
    train = {
        "ours": lambda: train_here(match, seed, run),
        "theirs": lambda: train_peer(match, seed, args.peer),
    }
    trained = {side: train[side]() for side in order}
    scores = ", ".join(f"{side} {each['score']:.1f} in {each['seconds']:.0f} s" for side, each in trained.items())
    print(f"{name} seed {seed}: {scores}", file=sys.stderr, flush=True)
    return trained


def train_command(match: Match, seed: str, run: str) -> list[str]:
    options = {**match.options, "eval_interval": 0, "num_envs": match.num_envs}
    changes = [word for key, value in options.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    machine = ["--device", "cpu", "--threads", "1", "--json"]
    budget = ["--steps", str(match.steps), "--seed", seed]
    return ["train", match.algo, match.env, *budget, *changes, "--output", run, *machine]


def train_here(match: Match, seed: int, run: Path) -> dict[str, Any]:
    trained = ask(train_command(match, str(seed), str(run)))
    if trained["updates_per_second"] is None:
        raise SystemExit(f"{run} was trained before, so its time cannot be measured. Choose another --output")
    return {"score": ask(evaluate_command(str(run)))["return_mean"], "seconds": trained["seconds"]}


def train_peer(match: Match, seed: int, python: Path) -> dict[str, Any]:
    words = [str(python), str(PEER), json.dumps(peer_request(match, seed))]
    ended = subprocess.run(words, env=SINGLE_THREADED, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"the peer ended with {ended.returncode}:\n{ended.stderr.strip()}")
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def peer_request(match: Match, seed: int | str) -> dict[str, Any]:
    options = {"num_envs": match.num_envs, "options": match.peer_options}
    return {"algo": match.peer_algo, "env": match.env, "steps": match.steps, "seed": seed, **options}


def summary(match: Match, pairs: list[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    scores = {side: [each[side]["score"] for each in pairs] for side in ("ours", "theirs")}
    seconds = {side: [each[side]["seconds"] for each in pairs] for side in ("ours", "theirs")}
    request = peer_request(match, "SEED")
    return {
        "what": f"{match.what}, {match.steps:,} steps, beside stable-baselines3 at equal settings",
        **statistics_of(scores, seconds),
        "goal": match.goal,
        "algo": match.algo,
        "env": match.env,
        "budget": match.steps,
        "seeds": list(seeds[: len(pairs)]),
        "scores": scores,
        "seconds": seconds,
        "commands": [
            shown(train_command(match, "SEED", "RUN")),
            f"VENV/bin/python benchmarks/peer_sb3.py '{json.dumps(request)}'",
        ],
    }


def statistics_of(scores: Pairs, seconds: Pairs) -> dict[str, Any]:
    """Every seed, the mean, which one failed seed changes, and the interquartile mean, which may hide it."""
    means = {side: fmean(each) for side, each in scores.items()}
    middles = {side: interquartile_mean(each) for side, each in scores.items()}
    difference = difference_interval(scores["ours"], scores["theirs"])
    bounds = "" if difference is None else " (difference [{:.1f}, {:.1f}])".format(*difference)
    texts = [
        f"mean {beside(means.values())}{bounds}",
        f"interquartile mean {beside(middles.values())}",
        f"seeds {' against '.join(', '.join(f'{score:.0f}' for score in each) for each in scores.values())}",
        speed(seconds),
    ]
    found = {"result": "; ".join(texts), "mean": means, "interquartile_mean": middles, "difference_95": difference}
    return found


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> list[float] | None:
    """95% bootstrap interval of the difference of means; None for single seeds."""
    if min(len(ours), len(theirs)) < 2:
        return None
    random = np.random.default_rng(0)
    means = [random.choice(each, size=(10_000, len(each))).mean(1) for each in (ours, theirs)]
    return [float(bound) for bound in np.quantile(means[0] - means[1], [0.025, 0.975])]


def speed(seconds: Pairs) -> str:
    ratios = [slow / fast for slow, fast in zip(seconds["theirs"], seconds["ours"], strict=True)]
    bounds = " [{:.2f}, {:.2f}]".format(*bootstrap_interval(ratios)) if len(ratios) > 1 else ""
    times = " against ".join(f"{interquartile_mean(each):.0f} s" for each in seconds.values())
    return f"{interquartile_mean(ratios):.2f}{bounds} times as fast ({times})"


def beside(numbers: Iterable[float]) -> str:
    return " against ".join(f"{number:.1f}" for number in numbers)


if __name__ == "__main__":
    main()
