"""Scores of the algorithms: trains each cell with several seeds and evaluates with fixed seeds, by `rl-training`.

python benchmarks/figures.py --data DIR [--cells NAME ...] [--seeds 0 1 2 3 4] [--jobs N]

A cell's result goes to benchmarks/results/NAME.json. The same command again continues and trains nothing twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from command_line import ask, shown
from figure_cells import CELLS, Cell
from provenance import known_commit, provenance

from rl_training.statistics import bootstrap_interval, interquartile_mean

RESULTS = Path(__file__).parent / "results"
EPISODES, EVALUATION_SEED = 50, 12345


def main() -> int:
    args = arguments()
    with ThreadPoolExecutor(args.jobs) as pool:
        runs = {
            name: [pool.submit(score, name, seed, args.output, args.data) for seed in args.seeds] for name in args.cells
        }
        cells, failed = {run: name for name, seeds in runs.items() for run in seeds}, 0
        left = Counter(cells.values())
        for run in as_completed(cells):
            name = cells[run]
            left[name] -= 1
            if not left[name]:
                failed += not conclude(name, runs[name], args.data)
    return 1 if failed else 0


def conclude(name: str, runs: list[Future[dict[str, Any]]], data: Path | None) -> bool:
    """Stores the result of a cell whose seeds have all ended; False if one of them failed."""
    try:
        result = summary(CELLS[name], [run.result() for run in runs], data=data)
    except RuntimeError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    write(RESULTS / f"{name}.json", result)
    print(f"{name}: {result['result']}", flush=True)
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="NAME", help=", ".join(CELLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, one thread each")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the datasets")
    parser.add_argument("--output", type=Path, default=Path("runs/figures"), metavar="DIR", help="parent of the runs")
    args = parser.parse_args()
    for name in args.cells:
        file = CELLS[name].data
        if file is not None and (args.data is None or not (args.data / file).is_file()):
            parser.error(f"{name} needs --data DIR, the folder that holds {file}; got {args.data}")
    return args


def score(name: str, seed: int, output: Path, data: Path | None) -> dict[str, Any]:
    """Trains one seed, unless it is trained, and evaluates its last checkpoint."""
    cell, run = CELLS[name], output / name / f"seed_{seed}"
    trained = ask(train_command(cell, seed=str(seed), run=str(run), data=str(data)))
    if trained["status"] != "finished":
        raise RuntimeError(f"{run} was {trained['status']} at step {trained['steps']}")
    played = ask(evaluate_command(str(run)))
    print(f"{name} seed {seed}: {played['return_mean']:.1f}", file=sys.stderr, flush=True)
    rate = trained["updates_per_second"]
    return {
        "seed": seed,
        "score": played["return_mean"],
        "train_seconds": trained["updates"] / rate if rate else None,  # None for a run that was already complete
        "commit": json.loads((run / "run.json").read_text())["git"],
    }


def train_command(cell: Cell, *, seed: str, run: str, data: str) -> list[str]:
    dataset = [] if cell.data is None else ["--dataset", f"{data}/{cell.data}"]
    machine = ["--device", "cpu", "--threads", "1", "--set", "env_workers=0", "--json"]  # cores are for other runs
    return ["train", *cell.train.split(), *dataset, "--seed", seed, "--output", run, *machine]


def evaluate_command(run: str) -> list[str]:
    return ["evaluate", run, "--episodes", str(EPISODES), "--seed", str(EVALUATION_SEED), "--json"]


def summary(cell: Cell, runs: list[dict[str, Any]], *, data: Path | None) -> dict[str, Any]:
    scores = [run["score"] for run in runs]
    middle = interquartile_mean(scores)
    interval = list(bootstrap_interval(scores)) if len(scores) > 1 else None
    return {
        "what": cell.what,
        "result": f"{middle:.1f}" + (" [{:.1f}, {:.1f}]".format(*interval) if interval else ""),
        "goal": cell.goal,
        "published": cell.published,
        **cell.row,
        "interquartile_mean": middle,
        "interval_95": interval,
        "runs": runs,
        "commands": [
            shown(train_command(cell, seed="SEED", run="RUN", data="DATA")),
            shown(evaluate_command("RUN")),
        ],
        "data": None if cell.data is None or data is None else {"file": cell.data, "sha256": sha256(data / cell.data)},
        **provenance(),
        "commit": ", ".join(sorted({known_commit(run["commit"]) for run in runs})),
    }


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write(file: Path, result: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
