"""`python -m rl_training.experiment.bench.scoring EPISODES RUN...`: evaluates last checkpoints in one process."""

import json
import sys

from rl_training.experiment.agent import load_agent

EVALUATION_SEED = 12345  # shared by all compared scores; no training uses it


def main(episodes: str, *runs: str) -> None:
    """Prints a list with the output of `rl-training evaluate RUN --seed 12345 --json` for each run."""
    print(json.dumps([load_agent(run).evaluate(int(episodes), seed=EVALUATION_SEED) for run in runs]))


if __name__ == "__main__":
    main(*sys.argv[1:])
