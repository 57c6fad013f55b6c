"""`evaluate` and `predict`: run a trained agent, or estimate its return from data."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.options import Json, Trust
from rl_training.cli.output import print_facts, print_json, score, stdout_for_results

if TYPE_CHECKING:
    import numpy as np

    from rl_training.experiment.agent import Agent

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory (its newest checkpoint) or a checkpoint.")]
Best = Annotated[bool, typer.Option("--best", help="The run's best checkpoint by evaluation, not its newest.")]
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
CAUTION = (
    "the estimate does not cover states that are missing in the data, and the interval does not show this. "
    "Use it to compare policies, not as an absolute value"
)


def evaluate(
    run: Run,
    best: Best = False,
    episodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Episodes to run (default 10).")] = None,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Random seed for the episodes or the estimate.")] = 0,
    stochastic: Annotated[
        bool | None,
        typer.Option(
            "--stochastic/--deterministic", help="Sample actions or not (default: eval_stochastic of the run's config)."
        ),
    ] = None,
    ope: Annotated[
        str | None, typer.Option(metavar="DATASET", help="Estimate the return from data, without an environment.")
    ] = None,
    updates: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Updates of the estimate (default 10,000).")
    ] = None,
    gamma: Annotated[float | None, typer.Option(metavar="G", help="Discount of the estimate (default 0.99).")] = None,
    columns: Columns = None,
    action_range: ActionRange = None,
    allow: Allow = None,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Evaluate a trained agent in its environment. With --ope, estimate its discounted return from data alone; the
    data are read with the agent's own dataset options unless others are given. Actions are deterministic unless
    --stochastic or the config's eval_stochastic is set."""
    given = {name: value for name, value in (("updates", updates), ("gamma", gamma)) if value is not None}
    reading = read_options(columns, action_range, allow)
    if ope is None:
        unused = [*given, *(name for name, value in reading.items() if value)]
        if unused:
            option = unused[0].removeprefix("dataset_").replace("_", "-")
            raise ValueError(f"--{option} needs --ope DATASET, the estimate from data")
        play(run, best, 10 if episodes is None else episodes, seed, stochastic, trust or [], as_json)
    elif episodes is not None or stochastic is not None:
        option = "--episodes" if stochastic is None else "--stochastic" if stochastic else "--deterministic"
        raise ValueError(f"--ope runs no episodes: remove {option}")
    else:
        estimate(run, ope, best, seed, given, reading, as_json)


def play(
    run: Path, best: bool, episodes: int, seed: int, stochastic: bool | None, trust: list[str], as_json: bool
) -> None:
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent

        agent = load_agent(run, best=best, trust=trust)
        played = agent.evaluate(episodes, seed=seed, deterministic=None if stochastic is None else not stochastic)
    if as_json:
        print_json({"checkpoint": str(agent.path), **played})
        return
    lengths = f"{min(played['lengths'])} to {max(played['lengths'])} steps"
    print_facts({"return": score(played), "lengths": lengths, "checkpoint": str(agent.path)})


def estimate(
    run: Path, source: str, best: bool, seed: int, options: dict[str, Any], reading: dict[str, Any], as_json: bool
) -> None:
    """Prints fitted Q evaluation of a trained agent and the return of the behaviour policy."""
    with stdout_for_results():
        import torch

        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.ope import evaluate_policy_offline, load_dataset_for
        from rl_training.runtime.callbacks.progress import ShowProgress

        torch.set_num_threads(1)  # as in training: results do not depend on the number of cores
        agent = load_agent(run, best=best)
        dataset = load_dataset_for(agent, source, **reading)
        found = evaluate_policy_offline(agent, dataset, seed=seed, callbacks=[ShowProgress()], **options)
    if as_json:
        print_json({"checkpoint": str(agent.path), "dataset": source, **found._asdict()})
        return
    value = with_interval(found.estimate, found.interval)
    print_facts(
        {
            "estimate": f"{value}, discounted by {found.gamma:g}, in the rewards of the data",
            "behaviour": f"{with_interval(found.behaviour_return, found.behaviour_interval)} over {found.episodes} "
            f"episodes, discounted; undiscounted mean {found.behaviour_undiscounted_return:.5g}",
            "unseen": f"{found.unseen_actions:.0%} of the policy's actions differ from the data's in similar states",
            "checkpoint": str(agent.path),
        }
    )
    for warning in found.warnings:
        typer.echo(f"warning     {warning}")
    typer.echo(f"caution     {CAUTION}")


def with_interval(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.5g}" if interval is None else f"{value:.5g} (95% interval {interval[0]:.5g} to {interval[1]:.5g})"


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
