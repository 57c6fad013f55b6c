"""Whole trainings beside the peers at equal settings: networks, batch, updates, environments, one thread, one core.

python benchmarks/speed.py trainings --core 0 --peer sb3=VENV/bin/python --peer sbx=VENV/bin/python \\
    --peer tianshou=VENV/bin/python --peer d3rlpy=VENV/bin/python

Every repeat trains all libraries in turn, and each repeat starts with another one, so that a slow machine slows all.
rl_training is started by its command, logs to metrics.jsonl and writes its checkpoints; evaluation is off. Rates are
from a fixed step after the first updates to the last step, so compilation is left out; `total_seconds` is the whole
process. A ratio compares two trainings of the same repeat; above 1, rl_training is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line import SINGLE_THREADED, shown

from speed_cases.matches import MATCHES, SpeedMatch
from speed_cases.throughput import random_rows
from speed_cases.watched import Ended, log_rows, rates_between, watch

SCRIPTS = Path(__file__).parents[1] / "speed_peers"
SCRIPT_OF = {"sb3": "train_sb3.py", "sbx": "train_sb3.py", "tianshou": "train_tianshou.py", "d3rlpy": "train_d3rlpy.py"}
OURS = "rl_training"
ROWS, INTERVALS = 100_000, 40  # rows of the dataset; log entries of a run
ONE_THREAD = {**SINGLE_THREADED, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
Trained = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peer", action="append", default=[], type=peer, metavar="NAME=PYTHON", help=", ".join(SCRIPT_OF)
    )
    parser.add_argument(
        "--only", nargs="+", choices=MATCHES, default=list(MATCHES), metavar="NAME", help=", ".join(MATCHES)
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps-scale", type=float, default=1.0, metavar="F", help="factor of the measured steps")
    parser.add_argument("--core", type=int, help="the one CPU core that all use; default: all that are allowed")
    parser.add_argument(
        "--compile", choices=["auto", "on", "off"], default="auto", help="of rl_training (default auto)"
    )


def peer(text: str) -> tuple[str, Path]:
    name, _, python = text.partition("=")
    if name not in SCRIPT_OF or not Path(python).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=PYTHON, with a name of {', '.join(SCRIPT_OF)}")
    return name, Path(python)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})  # processes started from here inherit it
    pythons, found = dict(args.peer), {}
    with tempfile.TemporaryDirectory() as folder:
        data = random_rows(Path(folder) / "rows.npz", ROWS)
        for name in args.only:
            match = MATCHES[name].scaled(args.steps_scale)
            repeats = [repeat(match, number, pythons, data, args) for number in range(args.repeats)]
            found[name] = {"what": match.what, "steps": match.steps, **compared(repeats)}
            print(f"{name}: {ratio_text(found[name]['ratios'])}", file=sys.stderr, flush=True)
    return summary(found, args)


def repeat(
    match: SpeedMatch, number: int, pythons: Mapping[str, Path], data: Path, args: argparse.Namespace
) -> dict[str, Trained]:
    """Trains every library once with this number as seed; each number starts with another library."""
    sides = [OURS, *(name for name in match.peers if name in pythons)]
    start = number % len(sides)
    trained = {}
    for side in sides[start:] + sides[:start]:
        trained[side] = (
            train_here(match, number, data, args) if side == OURS
            else train_peer(match, side, number, data, pythons[side])
        )  # fmt: skip
        rate = trained[side].get("steps_per_second")
        line = trained[side].get("error") or f"{rate:,.0f}/s, {trained[side]['total_seconds']:.1f} s in all"
        print(f"  {match.what}, {side}, seed {number}: {line}", file=sys.stderr, flush=True)
    return trained


def command(match: SpeedMatch, seed: str, data: str, compile: str) -> list[str]:
    options = dict(match.options)
    if match.env is not None:
        options |= {"eval_interval": 0, "num_envs": match.num_envs}
    options["log_interval"] = max(match.steps // INTERVALS, 1)
    changes = [word for key, value in options.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    source = [match.env] if match.env is not None else ["--dataset", data]
    machine = ["--device", "cpu", "--threads", "1", "--compile", compile]
    return [match.algo, *source, "--steps", str(match.steps), "--seed", seed, *changes, *machine]


def train_here(match: SpeedMatch, seed: int, data: Path, args: argparse.Namespace) -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        try:
            found = watch(command(match, str(seed), str(data), args.compile), run, environment=ONE_THREAD)
        except Ended as error:
            return {"error": str(error)}
        return {**rates_between(log_rows(run), match.warm_up), "total_seconds": found["total_seconds"]}


def train_peer(match: SpeedMatch, name: str, seed: int, data: Path, python: Path) -> Trained:
    words = [str(python), str(SCRIPTS / SCRIPT_OF[name]), json.dumps(request(match, name, seed, str(data)))]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:  # for files that a peer writes
        ended = subprocess.run(words, env=ONE_THREAD, capture_output=True, text=True, cwd=folder)
    if ended.returncode:
        return {"error": ended.stderr.strip()[-500:]}
    answer: Trained = json.loads(ended.stdout.splitlines()[-1])
    return {**answer, "total_seconds": time.perf_counter() - start}


def request(match: SpeedMatch, name: str, seed: int | str, data: str) -> dict[str, Any]:
    simulator = {"env": match.env, "num_envs": match.num_envs, "images": match.images}
    source = simulator if match.env is not None else {"data": data}
    lengths = {"steps": match.steps, "warm_up": match.warm_up, "seed": seed}
    return {"library": name, "algo": match.algo, **source, **lengths, "options": match.options}


def compared(repeats: Sequence[dict[str, Trained]]) -> dict[str, Any]:
    """Rates and times of every library, and the ratios of ours to each peer."""
    sides = {side: [each[side] for each in repeats] for side in repeats[0]}
    errors = {side: runs[0]["error"] for side, runs in sides.items() if "error" in runs[0]}
    whole = {side: runs for side, runs in sides.items() if not any("error" in run for run in runs)}
    rates = {side: [run["steps_per_second"] for run in runs] for side, runs in whole.items()}
    seconds = {side: [run["total_seconds"] for run in runs] for side, runs in whole.items()}
    peers = [side for side in whole if side != OURS] if OURS in whole else []
    return {
        "steps_per_second": rates,
        "total_seconds": seconds,
        "ratios": {side: spread(rates[OURS], rates[side]) for side in peers},
        "total_ratios": {side: spread(seconds[side], seconds[OURS]) for side in peers},
        "versions": {side: runs[0]["versions"] for side, runs in whole.items() if "versions" in runs[0]},
        **({"errors": errors} if errors else {}),
    }


def spread(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def ratio_text(ratios: Mapping[str, Mapping[str, float]]) -> str:
    return ", ".join(
        f"{each['median']:.2f} [{each['min']:.2f}, {each['max']:.2f}] x {side}" for side, each in ratios.items()
    )


def summary(found: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    cores = "one core" if args.core is not None else f"{len(os.sched_getaffinity(0))} cores"
    peers = " ".join(f"--peer {name}=VENV/bin/python" for name, _ in args.peer)
    scale = "" if args.steps_scale == 1 else f" --steps-scale {args.steps_scale:g}"
    only = "" if len(args.only) == len(MATCHES) else f" --only {' '.join(args.only)}"
    options = f"--core 0 --repeats {args.repeats} --compile {args.compile}{scale}{only} {peers}"
    match = MATCHES[args.only[0]].scaled(args.steps_scale)
    return {
        "what": f"Steps a second of whole trainings, {cores}, one thread, beside peers: median ratio [min, max]",
        "result": "; ".join(f"{each['what']}: {ratio_text(each['ratios'])}" for each in found.values()),
        "goal": "1.8 times stable-baselines3 with SAC, 2 with DQN, 3 with PPO",
        "page": "performance",
        "seeds": list(range(args.repeats)),
        "trainings": found,
        "commands": [
            f"python benchmarks/speed.py trainings {options}",
            shown(["train", *command(match, "SEED", "DATA", args.compile)]),
        ],
    }
