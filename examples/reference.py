"""Common parts of the reference examples: a step budget from the command line, training, and the score."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training import ManagedAlgorithm


def make_parser(script: str, description: str | None, *, steps: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps, help="steps of each run: updates offline, else environment")
    output = Path("runs") / Path(script).stem.replace("_", "-")
    parser.add_argument("--output", type=Path, default=output, help="directory of the runs")
    parser.add_argument("--fresh", action="store_true", help="replace existing runs")
    return parser


def train_and_score(
    managed: type[ManagedAlgorithm],
    config: Mapping[str, Any],
    arguments: argparse.Namespace,
    *,
    name: str | None = None,
    episodes: int = 20,
    **options: Any,
) -> None:
    """Trains into a directory of its own below `--output`, evaluates and prints the mean return."""
    name = config["algo"] if name is None else name
    budget = {"total_timesteps": arguments.steps, "output_dir": str(arguments.output / name)}
    agent = managed(dict(config), **{**budget, **options})
    agent.learn(fresh=arguments.fresh)
    print(f"{name}: return {agent.evaluate(num_episodes=episodes)['return_mean']:.1f}")
