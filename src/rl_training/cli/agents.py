"""`evaluate` and `predict`: what a trained agent can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.output import print_facts, print_json, score, stdout_for_results

if TYPE_CHECKING:
    import numpy as np

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory (its newest checkpoint) or a checkpoint.")]
Best = Annotated[bool, typer.Option("--best", help="The run's best checkpoint by evaluation, not its newest.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on stdout.")]


def evaluate(
    run: Run,
    best: Best = False,
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Whole episodes to play.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Of the episodes; the same seed plays the same.")] = 0,
    as_json: Json = False,
) -> None:
    """Play episodes with a trained agent. It acts deterministically, in the environment it was trained for."""
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent

        agent = load_agent(run, best=best)
        played = agent.evaluate(episodes, seed=seed)
    if as_json:
        print_json({"checkpoint": str(agent.path), **played})
        return
    lengths = f"{min(played['lengths'])} to {max(played['lengths'])} steps"
    print_facts({"return": score(played), "lengths": lengths, "checkpoint": str(agent.path)})


def predict(
    run: Run,
    best: Best = False,
    obs: Annotated[
        str | None, typer.Option(metavar="JSON", help="An observation, or nested lists of them: '[0.1, 0, 0.2, 0]'.")
    ] = None,
    obs_file: Annotated[Path | None, typer.Option(metavar="FILE.npy", help="Observations in a NumPy file.")] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Draw actions, anew at each call.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a trained agent would do. Actions are in the environment's own units, one for each observation."""
    if obs is not None and obs_file is None:
        rows = parse_obs(obs)
    elif obs_file is not None and obs is None:
        rows = read_obs(obs_file)
    else:
        raise ValueError("give the observations either as --obs JSON or as --obs-file FILE.npy")
    with stdout_for_results():
        import torch

        from rl_training.experiment.agent import load_agent

        generator = torch.Generator()
        generator.seed()
        actions = load_agent(run, best=best).predict(rows, deterministic=not stochastic, generator=generator).tolist()
    if as_json:
        print_json({"actions": actions})
    else:
        typer.echo(json.dumps(actions))


def parse_obs(text: str) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        rows = np.asarray(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--obs must be JSON, such as [0.1, 0, 0.2, 0]: {error}") from error
    return numbers(rows, "--obs")


def read_obs(path: Path) -> np.ndarray[Any, Any]:
    import numpy as np

    if not path.is_file():
        raise FileNotFoundError(f"--obs-file: there is no file {path}")
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"--obs-file: {path} is not an array that np.save wrote: {error}") from error
    return numbers(rows, "--obs-file")


def numbers(rows: Any, option: str) -> np.ndarray[Any, Any]:
    import numpy as np

    kind = rows.dtype if isinstance(rows, np.ndarray) else type(rows).__name__  # of an .npz
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iuf":
        raise ValueError(f"{option} must hold an array of numbers, got {kind}")
    return rows
