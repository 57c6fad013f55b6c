"""`python -m rl_training.experiment.bench.scoring OPTIONS MODULES RUN...`: scores the runs of a cell."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from rl_training.experiment.agent import load_agent
from rl_training.experiment.bench.plan import EVALUATION_SEED
from rl_training.experiment.ope.runs import rank_runs
from rl_training.processes import kill_with_starter


def main(options: str, modules: str, *runs: str) -> None:
    """Prints a list with the score of each run, as `rl-training evaluate` gives it with `--json`.

    `options` is JSON with `episodes`, or with `test`, a dataset, and options of the estimate. `modules` are those that
    the runs may import, separated by commas.
    """
    given, trust = json.loads(options), modules.split(",")
    if "test" in given:
        print(json.dumps(_estimates(given.pop("test"), trust, runs, given)))
        return
    agents = (load_agent(run, trust=trust) for run in runs)
    print(json.dumps([agent.evaluate(given["episodes"], seed=EVALUATION_SEED) for agent in agents]))


def _estimates(source: str, trust: list[str], runs: tuple[str, ...], options: dict[str, Any]) -> list[dict[str, Any]]:
    """The seed is that of `evaluate`, so a run has the same estimate here and there."""
    torch.set_num_threads(1)
    found = rank_runs([Path(run) for run in runs], source, trust=trust, reading={}, **options).to_json()
    shared = {key: found[key] for key in ("behaviour_return", "behaviour_interval", "notes")}
    scores = {run["run_dir"]: {"dataset": source, **run, **shared} for run in found["runs"]}
    return [scores[run] for run in runs]


if __name__ == "__main__":
    kill_with_starter()
    main(*sys.argv[1:])
