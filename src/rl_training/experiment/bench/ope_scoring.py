"""`python -m rl_training.experiment.bench.ope_scoring OPTIONS MODULES RUN...`: estimates runs from data."""

import json
import sys
from pathlib import Path

import torch

from rl_training.experiment.ope.runs import rank_runs
from rl_training.processes import kill_with_starter


def main(options: str, modules: str, *runs: str) -> None:
    """Prints a list with the entry of each run in `rl-training evaluate RUN... --ope DATASET --json`.

    `options` is JSON with `test`, the dataset, and the options of the estimate. The seed is that of
    `evaluate`, so a run has the same estimate here and there.
    """
    torch.set_num_threads(1)
    given = json.loads(options)
    source = given.pop("test")
    found = rank_runs([Path(run) for run in runs], source, trust=modules.split(","), reading={}, **given).to_json()
    shared = {key: found[key] for key in ("behaviour_return", "behaviour_interval", "notes")}
    scores = {run["run_dir"]: {"dataset": source, **run, **shared} for run in found["runs"]}
    print(json.dumps([scores[run] for run in runs]))


if __name__ == "__main__":
    kill_with_starter()
    main(*sys.argv[1:])
