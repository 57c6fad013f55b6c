"""Steps a second of `rl-training train` on a GPU, after the start, for one seed and for populations.

Every training ends when its log covers --window seconds after the start, or after --limit seconds. Offline algorithms
learn from random rows of the size of HalfCheetah's. A training that fails is reported, and the next one starts.
--lines FILE appends each result as one JSON line as soon as it is known.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed_cases.throughput import random_rows
from speed_cases.watched import Ended, log_rows, seconds_to_return, watch

ONLINE = "--set eval_interval=0 --set log=[]"
DATA = "--dataset DATA --set log=[]"


@dataclass(frozen=True)
class Training:
    arguments: str  # of `rl-training train`
    unit: str  # what is counted: steps or updates
    seeds: int = 1
    goal: str = ""
    reach: float | None = None  # return of training episodes whose time is reported


def offline(algo: str, seeds: int, interval: int, goal: str = "", options: str = "") -> Training:
    return Training(f"{algo} {DATA} --steps 1000000 --set log_interval={interval} {options}", "updates", seeds, goal)


def halfcheetah(seeds: int, goal: str) -> Training:
    arguments = f"sac HalfCheetah-v5 --steps 1000000 --set log_interval=500 {ONLINE}"
    return Training(arguments, "steps", seeds, goal)


TRAININGS = {
    "sac_halfcheetah": halfcheetah(1, "1,500"),
    "sac_halfcheetah_16": halfcheetah(16, "12,000"),
    "iql": offline("iql", 1, 1000, "6,000"),
    "iql_16": offline("iql", 16, 1000, "60,000"),
    "iql_64": offline("iql", 64, 500, "100,000"),
    "cql": offline("cql", 1, 500, "2,000"),
    "cql_16": offline("cql", 16, 250, "8,000"),
    "cql_64": offline("cql", 64, 100),
    "ppo_device_cartpole": Training(
        "ppo CartPole-v1 --steps 60000000 --set env_backend=device --set num_envs=4096 --set num_steps=32 "
        "--set batch_size=16384 --set epochs=4 --set learning_rate=0.002 --set log_interval=524288 "
        f"{ONLINE}",
        "steps", goal="5,000,000", reach=475.0,
    ),
    "ppo_breakout": Training(f"ppo/breakout_atari --set log_interval=1024 {ONLINE}", "steps"),
    "dqn_pong": Training(
        f"dqn/pong_atari --set log_interval=500 --set learning_starts=2000 {ONLINE}", "steps"
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(TRAININGS)
    parser.add_argument("--only", nargs="+", choices=TRAININGS, default=list(TRAININGS), metavar="NAME", help=names)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--window", type=float, default=12.0, help="seconds after the start that are measured")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a training, with its start")
    parser.add_argument("--total", type=float, help="seconds after which no further training starts")
    parser.add_argument("--rows", type=int, default=1_000_000, help="transitions in the dataset")
    parser.add_argument("--options", default="", help="further options of all trainings, such as '--compile off'")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="append each result as one JSON line")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "rows.npz"
        for name in args.only:
            if args.total is not None and time.monotonic() - begun > args.total:
                results[name] = {"error": f"not started: --total {args.total:g} seconds are over"}
            else:
                results[name] = measured(TRAININGS[name], Path(folder) / name, data, args)
            show(name, results[name], args.lines)
    return summary(results, args)


def measured(training: Training, run: Path, data: Path, args: argparse.Namespace) -> dict[str, Any]:
    if "DATA" in training.arguments and not data.exists():
        random_rows(data, args.rows)
    words = [*command(training, str(data)), *args.options.split(), "--device", args.device]
    try:
        found = watch(words, run, window=args.window, limit=args.limit, environment=dict(os.environ))
    except Ended as error:
        return {"error": str(error)}
    rate = found[f"{training.unit}_per_second"]
    result = {
        "rate": None if rate is None else training.seeds * rate,
        "unit": f"seed-{training.unit} a second",
        **found,
    }
    if training.reach is not None:
        result[f"seconds_to_{training.reach:g}"] = seconds_to_return(log_rows(run), training.reach)
    return {**result, "goal": training.goal}


def command(training: Training, data: str) -> list[str]:
    seeds = ["--seed", "0"] if training.seeds == 1 else ["--seeds", f"0-{training.seeds - 1}"]
    return [data if word == "DATA" else word for word in training.arguments.split()] + seeds


def show(name: str, result: dict[str, Any], lines: Path | None) -> None:
    line = json.dumps({"name": name, **result})
    print(line, file=sys.stderr, flush=True)
    if lines is not None:
        with lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def summary(results: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    rates = {name: result["rate"] for name, result in results.items() if result.get("rate")}
    return {
        "what": "`rl-training train` on a GPU: steps (offline: updates) a second after the start, summed over seeds",
        "result": "; ".join(f"{name}: {rate:,.0f}" for name, rate in rates.items()),
        "goal": "; ".join(f"{name}: {TRAININGS[name].goal}" for name in results if TRAININGS[name].goal),
        "page": "performance",
        "trainings": results,
        "commands": [
            f"rl-training train {' '.join(command(TRAININGS[name], 'DATA'))} --device {args.device}" for name in results
        ],
    }
