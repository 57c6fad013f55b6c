"""Growth of the speed with batch size, width, seeds, environments on the device, and rows of the dataset.

Batch size, width and seeds: updates a second of SAC on a full replay buffer. Rows: updates a second of IQL. One value
changes at a time; the others are a batch of 256, two layers of 256, one seed. Environments: steps a second of
`rl-training train ppo CartPole-v1 --set env_backend=device` with a rollout of 16 steps.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms import IQLAlgorithm, Learner, SACAlgorithm, Updater
from rl_training.data import ReplayBuffer, TransitionDataset
from speed_cases.throughput import SPEC
from speed_cases.timing import per_second
from speed_cases.watched import Ended, watch

VALUES = {
    "batch size": (64, 256, 1024, 4096, 16384),
    "width": (64, 128, 256, 512, 1024, 2048),
    "seeds": (1, 2, 4, 8, 16, 32, 64),
    "rows": (10_000, 100_000, 1_000_000, 5_000_000),
    "environments": (16, 64, 256, 1024, 4096, 16384),
}
UNITS = {"seeds": "seed-updates", "environments": "steps"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--only", nargs="+", choices=VALUES, default=list(VALUES), metavar="NAME", help=", ".join(VALUES)
    )
    parser.add_argument(
        "--largest", type=float, default=1.0, metavar="F", help="leave out values above F times the largest"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of one measurement")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads for PyTorch")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    rates: dict[str, dict[str, float]] = {}
    for name in args.only:
        rates[name] = {}
        for value in (each for each in VALUES[name] if each <= args.largest * VALUES[name][-1]):
            rate = rate_of(name, value, args)
            print(f"{name} {value:,}: {'failed' if rate is None else f'{rate:,.0f}'}", file=sys.stderr, flush=True)
            if rate is not None:
                rates[name][str(value)] = rate
    return summary(rates, args)


def rate_of(name: str, value: int, args: argparse.Namespace) -> float | None:
    if name == "environments":
        return on_device(value, args)
    if name == "rows":
        return updates_per_second(IQLAlgorithm, args, rows=value)
    option = {"batch size": "batch_size", "width": "width", "seeds": "seeds"}[name]
    rate = updates_per_second(SACAlgorithm, args, **{option: value})
    return rate * value if name == "seeds" else rate


def updates_per_second(
    learner: type[Learner], args: argparse.Namespace, *, batch_size: int = 256, width: int = 256, seeds: int = 1,
    rows: int = 100_000,
) -> float:  # fmt: skip
    options = {"batch_size": batch_size, "hidden_sizes": (width, width)}
    learners = [learner.build(SPEC, **options).to(args.device) for _ in range(seeds)]
    cuda = args.device.startswith("cuda")
    source: Any = full_replay(rows, seeds, args.device) if learner is SACAlgorithm else None
    if source is None:
        source = dataset(rows).to(args.device)
    updater = Updater(learners, capture=cuda)
    chunk = 128 if cuda else 1
    return chunk * per_second(lambda: updater.run(source, chunk), args.device, args.seconds, warm_up=2)


def dataset(rows: int) -> TransitionDataset:
    obs = torch.randn(rows, *SPEC.obs_shape)
    columns = {"obs": obs, "actions": torch.rand(rows, SPEC.action_dim) * 2 - 1, "rewards": torch.randn(rows),
               "next_obs": obs + 0.1, "dones": torch.zeros(rows), "truncated": torch.zeros(rows)}  # fmt: skip
    return TransitionDataset(columns, spec=SPEC)


def full_replay(rows: int, seeds: int, device: str) -> ReplayBuffer:
    members = seeds if seeds > 1 else None
    replay = ReplayBuffer(rows, SPEC, device=device, members=members)
    lead = (rows,) if members is None else (members, rows)
    columns = {name: column.shape[len(lead) :] for name, column in replay.columns.items()}
    replay.add({name: torch.full((*lead, *shape), 0.1, device=device) for name, shape in columns.items()})
    return replay


def on_device(num_envs: int, args: argparse.Namespace) -> float | None:
    """Environment steps a second, with the updates of PPO: four minibatches, four epochs."""
    options = {"env_backend": "device", "num_envs": num_envs, "num_steps": 16, "batch_size": 4 * num_envs, "epochs": 4,
               "eval_interval": 0, "log": "[]", "log_interval": 16 * num_envs}  # fmt: skip
    changes = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    words = ["ppo", "CartPole-v1", "--steps", str(10**9), "--device", args.device, "--threads", str(args.threads)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            found = watch([*words, *changes], Path(folder) / "run", window=args.seconds, limit=90)
        except Ended as error:
            print(error, file=sys.stderr)
            return None
    rate: float | None = found["steps_per_second"]
    return rate


def summary(rates: dict[str, dict[str, float]], args: argparse.Namespace) -> dict[str, Any]:
    parts = []
    for name, found in rates.items():
        if found:
            (first, low), *_, (last, high) = [*found.items(), *list(found.items())[-1:]]
            unit = UNITS.get(name, "updates")
            parts.append(f"{name} {int(first):,} to {int(last):,}: {low:,.0f} to {high:,.0f} {unit} a second")
    return {
        "what": f"Growth of the speed on {args.device}",
        "result": "; ".join(parts),
        "goal": "",
        "page": "performance",
        "device": args.device,
        "rates": rates,
        "commands": [f"python benchmarks/speed.py growth --device {args.device}"],
    }
