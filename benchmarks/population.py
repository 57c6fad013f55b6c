"""Ten seeds as one population against ten single runs: the scores must have the same distribution.

python benchmarks/population.py --data DIR [--cells NAME ...] [--jobs N] [--device cpu]
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from command_line import ask, shown
from figure_cells import CELLS, PENDULUM_REPLAY
from figures import EPISODES, evaluate_command, train_command
from provenance import provenance

from rl_training.statistics import bootstrap_interval, interquartile_mean

TRIED = ("iql_pendulum_replay", "sac_pendulum", "dqn_cartpole")
SEEDS = 10
PERMUTATIONS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=TRIED, default=list(TRIED), metavar="NAME")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=f"holds {PENDULUM_REPLAY}")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="single runs at a time, one thread each")
    parser.add_argument("--device", default="cpu", help="device of the populations; single runs use the CPU")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed to `train`")
    parser.add_argument("--output", type=Path, default=Path("runs/population"), metavar="DIR")
    args = parser.parse_args()
    with ThreadPoolExecutor(1) as alone, ThreadPoolExecutor(args.jobs) as pool:
        together = {name: alone.submit(population, name, args, pool) for name in args.cells}
        singles = {name: [pool.submit(single, name, seed, args) for seed in range(SEEDS)] for name in args.cells}
        cells = {name: compared(name, scores(singles[name]), together[name].result()) for name in args.cells}
    print(json.dumps({**summary(cells, args), **provenance()}, indent=2))


def command(
    name: str, args: argparse.Namespace, run: str, *seeds: str, device: str, data: str | None = None
) -> list[str]:
    words = train_command(CELLS[name], seed="0", run=run, data=data or str(args.data))
    at, on = words.index("--seed"), words.index("--device")
    words[at : at + 2], words[on + 1] = seeds, device
    return [*words, *(word for change in args.set for word in ("--set", change))]


def single(name: str, seed: int, args: argparse.Namespace) -> float:
    run = str(args.output / name / f"single_{seed}")
    ask(command(name, args, run, "--seed", str(seed), device="cpu"))
    return score(run)


def population(name: str, args: argparse.Namespace, pool: ThreadPoolExecutor) -> list[float]:
    run = args.output / name / "population"
    ask(command(name, args, str(run), "--seeds", f"0-{SEEDS - 1}", device=args.device))
    print(f"{name}: population trained", file=sys.stderr, flush=True)
    return scores([pool.submit(score, str(run / f"seed_{seed}")) for seed in range(SEEDS)])


def score(run: str) -> float:
    played = ask(evaluate_command(run))
    print(f"{run}: {played['return_mean']:.1f}", file=sys.stderr, flush=True)
    return float(played["return_mean"])


def scores(pending: list[Future[float]]) -> list[float]:
    return [each.result() for each in pending]


def compared(name: str, singles: list[float], together: list[float]) -> dict[str, Any]:
    intervals = [bootstrap_interval(singles), bootstrap_interval(together)]
    return {
        "what": CELLS[name].what,
        "singles": singles,
        "population": together,
        "interquartile_means": [interquartile_mean(singles), interquartile_mean(together)],
        "intervals_95": [list(each) for each in intervals],
        "overlap": max(each.low for each in intervals) <= min(each.high for each in intervals),
        "ks_p": kolmogorov_smirnov(singles, together),
    }


def kolmogorov_smirnov(a: list[float], b: list[float]) -> float:
    """P-value of the Kolmogorov-Smirnov test by permutation, exact with ties and for few scores."""
    together = np.array(a + b)
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(np.tile(together, (PERMUTATIONS, 1)), axis=1)
    far = _distances(shuffled, len(a)) >= _distances(together[None], len(a)) - 1e-12
    return float((far.sum() + 1) / (PERMUTATIONS + 1))


def _distances(rows: np.ndarray[Any, Any], first: int) -> np.ndarray[Any, Any]:
    """The largest distance between the empirical distribution functions of the two parts, for each row."""
    at = np.sort(rows, axis=1)[:, None, :]
    shares = [(part[:, :, None] <= at).mean(1) for part in (rows[:, :first], rows[:, first:])]
    gaps: np.ndarray[Any, Any] = np.abs(shares[0] - shares[1]).max(1)
    return gaps


def summary(cells: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    parts = []
    for cell in cells.values():
        one, many = (
            f"{middle:.1f} [{low:.1f}, {high:.1f}]"
            for middle, (low, high) in zip(cell["interquartile_means"], cell["intervals_95"], strict=True)
        )
        parts.append(f"{cell['what']}: singles {one}, population {many}, KS p = {cell['ks_p']:.2f}")
    return {
        "what": f"{SEEDS} seeds as one population against single runs, {EPISODES} episodes of the last checkpoint",
        "result": "; ".join(parts),
        "goal": "intervals overlap, KS test above 0.05",
        "note": f"populations on {args.device}, single runs on the CPU with one thread each",
        "cells": cells,
        "commands": [
            shown(command(name, args, "RUN", *seeds, device=device, data="DATA"))
            for name in cells
            for seeds, device in ((("--seed", "SEED"), "cpu"), (("--seeds", f"0-{SEEDS - 1}"), args.device))
        ],
    }


if __name__ == "__main__":
    main()
