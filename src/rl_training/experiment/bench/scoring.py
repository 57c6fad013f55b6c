"""`python -m rl_training.experiment.bench.scoring EPISODES MODULES RUN...`: evaluates last checkpoints."""

import json
import sys

from rl_training.experiment.agent import load_agent
from rl_training.experiment.bench.plan import EVALUATION_SEED
from rl_training.processes import kill_with_starter


def main(episodes: str, modules: str, *runs: str) -> None:
    """Prints a list with the output of `rl-training evaluate RUN --seed 12345 --json` for each run.

    `modules` are those of the plan's environment, separated by commas, which the runs may import.
    """
    agents = (load_agent(run, trust=modules.split(",")) for run in runs)
    print(json.dumps([agent.evaluate(int(episodes), seed=EVALUATION_SEED) for agent in agents]))


if __name__ == "__main__":
    kill_with_starter()
    main(*sys.argv[1:])
