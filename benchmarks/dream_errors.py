"""How far a world model sees: its error on frames foreseen by actions alone, against two plain guesses.

python benchmarks/dream_errors.py RUN ... > benchmarks/results/dream_errors.json

The runs are those that benchmarks/figures.py has left of one cell, by default in runs/figures/dreamer_catch.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from command_line import ask, shown
from provenance import known_commit, provenance

GUESSES = {"of_copy_last": "of saying that the last frame stays", "of_shuffled": "of its own, told another's actions"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", default=sorted(Path("runs/figures/dreamer_catch").glob("seed_*"))
    )
    parser.add_argument("--context", type=int, default=1, help="frames that the model sees first")
    parser.add_argument("--steps", type=int, default=10, help="frames that it foresees, at most")
    asked = parser.parse_args()
    if not asked.runs:
        parser.error("there is no run: train some by benchmarks/figures.py --cells dreamer_catch")
    command = ["dream", "RUN", "--context", str(asked.context), "--steps", str(asked.steps), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        picture = ["--output", f"{folder}/dream.png"]
        told = [ask([word if word != "RUN" else str(run) for word in command] + picture) for run in asked.runs]
    worst = {name: max(each[name] for each in told) for name in GUESSES}
    commits = {known_commit(json.loads((run / "run.json").read_text())["git"]) for run in asked.runs}
    frames = f"up to {asked.steps} frames foreseen, {asked.context} seen"
    result = {
        "what": f"Dreamer on Catch: error of {frames}, worst of {len(told)} seeds",
        "result": "; ".join(f"{worst[name]:.3f} {guess}" for name, guess in GUESSES.items()),
        "goal": "at most 0.5 and 0.7",
        "errors": [{name: each[name] for name in ("prediction_error", *GUESSES)} for each in told],
        "commands": [shown(command)],
        **provenance(),
        "commit": ", ".join(sorted(commits)),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
