"""`predict`: the actions of a trained agent for given observations."""

from __future__ import annotations

import json
import os
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
        metavar="JSON",
        help="One observation, '[0.1, 0, 0.2, 0]', or a list of them; objects for Dict spaces or named columns.",
    ),
]
ObservationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Observations: a table by column names (.csv, .csv.gz, .parquet), .npy, or .npz with one array per key.",
    ),
]
Sampled = Annotated[bool, typer.Option("--stochastic", help="Sample actions, with a new seed at each call.")]
Episode = Annotated[
    bool,
    typer.Option("--episode", help="The observations are the steps of one episode, in order (for recurrent agents)."),
]


Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Also print the probability of each Discrete action.")
]


def predict(
    run: Run, best: Best = False, obs: Observations = None, obs_file: ObservationFile = None,
    stochastic: Sampled = False, episode: Episode = False, probabilities: Probabilities = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Print the actions of a trained agent. One action for each observation, both in the environment's own form. A
    recurrent agent treats each observation as the first of an episode unless --episode is given."""
    if obs is not None and obs_file is None:
        given = parse_obs(obs)
    elif obs_file is not None and obs is None:
        given = None if is_table_file(obs_file) else read_obs(obs_file)
    else:
        raise ValueError("observations are missing or given twice: use either --obs JSON or --obs-file FILE.npy")
    if episode and probabilities:
        raise ValueError("--probabilities treats every observation as the first of an episode; leave out --episode")
    with stdout_for_results():
        import torch

        from rl_training.data.readers.observations import read_observations
        from rl_training.experiment.agent import load_agent

        agent = load_agent(run, best=best)
        options: Any = {"deterministic": not stochastic}
        if stochastic:
            options["generator"] = torch.Generator()
            options["generator"].seed()
        if given is None and obs_file is not None:
            given = read_observations(obs_file, agent.spec, agent.config.table.csv_dialect)
        rows = own_form(agent, given)
        if episode:
            actions = of_episode(agent, rows, options)
        else:
            actions = as_lists(agent.predict(rows, **options), agent.lead(rows))
        found = {"actions": actions, **(probabilities_of(agent, rows) if probabilities else {})}
    if as_json:
        print_json(found)
    else:
        typer.echo(json.dumps(by_name(found) if probabilities else actions))


def probabilities_of(agent: Agent, rows: Any) -> dict[str, Any]:
    from rl_training.data.spaces import action_names, choice_names
    from rl_training.experiment.export.policy import action_probabilities

    choices = action_probabilities(agent, rows)
    if agent.spec.action_kind == "discrete":
        names: Any = action_names(agent.spec)
        found = {"probabilities": choices[0].tolist()}
    else:
        names = choice_names(agent.spec)
        found = {"probabilities": as_lists(choices, agent.lead(rows))}
    return found if names is None else {**found, "action_names": names}


def by_name(found: dict[str, Any]) -> dict[str, Any]:
    """Writes the name of each action beside its probability, if actions have names."""
    names = found.get("action_names")

    def named(values: Any, names: Any) -> Any:
        if names is None:
            return values
        first = values[0][0] if isinstance(names, dict) else values[0]
        if isinstance(first, list):
            return [named(each, names) for each in values]
        if isinstance(names, dict):  # a choice for each column
            pairs = zip(names.items(), values, strict=True)
            return {column: named(each, own) for (column, own), each in pairs}
        return dict(zip(names, values, strict=True))

    actions, probabilities = found["actions"], named(found["probabilities"], names)
    return found if names is None else {"actions": actions, "probabilities": probabilities}


def is_table_file(path: Path) -> bool:
    from rl_training.data.readers.observations import is_table

    if path.is_dir():
        raise IsADirectoryError(f"--obs-file: {path} is a directory; name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"--obs-file: {path} not found")
    return is_table(path)


def of_episode(agent: Agent, rows: Any, options: dict[str, Any]) -> list[Any]:
    from rl_training.data.spaces import entry
    from rl_training.runtime.memory import Memory

    memory, lead = Memory(), agent.lead(rows)
    if not lead:
        raise ValueError("--episode takes a list of observations, got a single one: put it in brackets")
    actions = (agent.predict(entry(rows, step), memory=memory, **options) for step in range(lead[0]))
    return [as_lists(action, lead[1:]) for action in actions]


def own_form(agent: Agent, given: Any) -> Any:
    """Nests observations like the agent's Dict or Tuple space; others become one array."""
    from rl_training.data.spaces import batched, is_named, leaves, observations_of, rebuild

    if is_named(given, agent.spec):
        return agent.unnamed(given)
    converter = observations_of(agent.spec)
    if converter is None or converter.space["type"] not in ("Dict", "Tuple"):
        return {name: array(part) for name, part in given.items()} if isinstance(given, dict) else array(given)
    parts = {leaf.name: leaf.path for leaf in leaves(converter.space)}
    if isinstance(given, dict) and given.keys() == parts.keys():  # an .npz file names nested parts by their paths
        return rebuild(converter.space, {path: given[name] for name, path in parts.items()})
    return batched(given, converter.space)


def as_lists(actions: Any, lead: tuple[int, ...]) -> Any:
    """Returns actions as JSON values: one for each observation."""
    from rl_training.data.spaces import entry

    if lead and isinstance(actions, (dict, tuple)):
        return [as_lists(entry(actions, number), lead[1:]) for number in range(lead[0])]
    if isinstance(actions, dict):
        return {name: as_lists(part, ()) for name, part in actions.items()}
    return [as_lists(part, ()) for part in actions] if isinstance(actions, tuple) else actions.tolist()


def parse_obs(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        file = "; use --obs-file for a file" if text.endswith((".npy", ".npz")) or _is_file(text) else ""
        raise ValueError(f"--obs must be JSON, such as [0.1, 0, 0.2, 0], got {reprlib.repr(text)}{file}") from error


def _is_file(text: str) -> bool:
    return len(text) < 1_000 and "\0" not in text and os.path.isfile(text)


def array(nested: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        rows = np.asarray(nested)
    except ValueError as error:  # lists of different lengths
        raise ValueError("--obs must have observations of one length, such as [[0.1, 0], [0.2, 0]]") from error
    return numbers(rows, "--obs")


def read_obs(path: Path) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Reads observations from a .npy file; an .npz becomes one array for each key."""
    import numpy as np

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
