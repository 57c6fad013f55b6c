"""`python -m rl_training.experiment.bench.scoring EPISODES RUN...`: last checkpoints played, many in one process."""

from __future__ import annotations

import json
import sys

from rl_training.experiment.agent import load_agent

EVALUATION_SEED = 12345  # of every score that is compared; no training draws from it


def main(episodes: str, *runs: str) -> None:
    """Prints what `rl-training evaluate RUN --seed 12345 --json` would for each, as one list on the last line."""
    print(json.dumps([load_agent(run).evaluate(int(episodes), seed=EVALUATION_SEED) for run in runs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
