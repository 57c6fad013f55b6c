"""`predict`: the actions of a trained agent for given observations."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.options import Best, Json, Run
from rl_training.cli.output import print_json, stdout_for_results

if TYPE_CHECKING:
    import numpy as np

    from rl_training.experiment.agent import Agent

Observations = Annotated[
    str | None,
    typer.Option(
        metavar="JSON", help="One observation or nested lists of them, '[0.1, 0, 0.2, 0]'; objects for a Dict space."
    ),
]
ObservationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npy", help="Observations in a NumPy file; an .npz with one array a key for a Dict space."
    ),
]
Sampled = Annotated[bool, typer.Option("--stochastic", help="Sample actions, with a new seed at each call.")]
Episode = Annotated[
    bool,
    typer.Option("--episode", help="The observations are one episode in order, which a recurrent agent remembers."),
]


def predict(
    run: Run,
    best: Best = False,
    obs: Observations = None,
    obs_file: ObservationFile = None,
    stochastic: Sampled = False,
    episode: Episode = False,
    as_json: Json = False,
) -> None:
    """Print the actions of a trained agent. One action for each observation, in the environment's units. A recurrent
    agent treats each observation as the first of an episode unless --episode is given."""
    if obs is not None and obs_file is None:
        rows = parse_obs(obs)
    elif obs_file is not None and obs is None:
        rows = read_obs(obs_file)
    else:
        raise ValueError("observations are missing or given twice: use either --obs JSON or --obs-file FILE.npy")
    with stdout_for_results():
        import torch

        from rl_training.experiment.agent import load_agent
        from rl_training.runtime.memory import Memory

        agent, memory = load_agent(run, best=best), Memory()
        options: Any = {"deterministic": True}
        if stochastic:
            options = {"deterministic": False, "generator": torch.Generator()}
            options["generator"].seed()
        if episode:
            actions = [agent.predict(row, memory=memory, **options).tolist() for row in one_by_one(agent, rows)]
        else:
            actions = agent.predict(rows, **options).tolist()
    if as_json:
        print_json({"actions": actions})
    else:
        typer.echo(json.dumps(actions))


def one_by_one(agent: Agent, rows: Any) -> list[Any]:
    count = agent.rows(rows).shape[: -len(agent.spec.obs_shape)]
    if not count:
        raise ValueError("--episode takes a list of observations, got a single one: put it in brackets")
    if isinstance(rows, dict):
        return [{name: part[i] for name, part in rows.items()} for i in range(count[0])]
    return list(rows)


def parse_obs(text: str) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Reads observations from JSON; objects become one array for each key."""
    try:
        nested = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--obs must be JSON, such as [0.1, 0, 0.2, 0], got {reprlib.repr(text)}") from error
    if isinstance(nested, list) and nested and all(isinstance(each, dict) for each in nested):
        names = [*dict.fromkeys(name for each in nested for name in each)]
        nested = {name: [each.get(name) for each in nested] for name in names}
    return {name: array(part) for name, part in nested.items()} if isinstance(nested, dict) else array(nested)


def array(nested: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        rows = np.asarray(nested)
    except ValueError as error:
        raise ValueError("--obs must have observations of one length, such as [[0.1, 0], [0.2, 0]]") from error
    return numbers(rows, "--obs")


def read_obs(path: Path) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Reads observations from a .npy file; an .npz becomes one array for each key."""
    import numpy as np

    if not path.is_file():
        raise FileNotFoundError(f"--obs-file: {path} not found")
    try:
        rows = np.load(path, allow_pickle=False)
        if not isinstance(rows, np.ndarray):
            with rows:
                return {name: numbers(part, "--obs-file") for name, part in rows.items()}
    except (ValueError, EOFError) as error:
        raise ValueError(f"--obs-file: {path} is not a numeric array written by np.save") from error
    return numbers(rows, "--obs-file")


def numbers(rows: Any, option: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if not isinstance(rows, np.ndarray):
        raise ValueError(f"{option} must be one array of numbers: use a file written by np.save")
    if rows.dtype.kind not in "iuf":
        kind = {"U": "text", "b": "true or false", "O": "null or objects"}.get(rows.dtype.kind, rows.dtype)
        raise ValueError(f"{option} must be an array of numbers, got {kind}")
    return rows
