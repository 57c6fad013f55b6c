"""`evaluate` and `predict`: what a trained agent can do, played or estimated."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.options import Json
from rl_training.cli.output import print_facts, print_json, score, stdout_for_results

if TYPE_CHECKING:
    import numpy as np

    from rl_training.experiment.agent import Agent

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory (its newest checkpoint) or a checkpoint.")]
Best = Annotated[bool, typer.Option("--best", help="The run's best checkpoint by evaluation, not its newest.")]
CAUTION = (
    "the estimate knows nothing of states the data never visit, and no interval shows that: compare policies by it, "
    "do not trust the number"
)


def evaluate(
    run: Run,
    best: Best = False,
    episodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Whole episodes to play; 10.")] = None,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Of the episodes, or of the estimate.")] = 0,
    stochastic: Annotated[
        bool | None,
        typer.Option(
            "--stochastic/--deterministic", help="Draw actions, as in training, or not; as the run's config says."
        ),
    ] = None,
    ope: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Play nothing: estimate the return from data."),
    ] = None,
    updates: Annotated[int | None, typer.Option(metavar="N", min=1, help="Of the estimate; 10,000.")] = None,
    gamma: Annotated[float | None, typer.Option(metavar="G", help="Discount of the estimate; 0.99.")] = None,
    columns: Columns = None,
    action_range: ActionRange = None,
    allow: Allow = None,
    as_json: Json = False,
) -> None:
    """Play episodes with a trained agent, in the environment it was trained for; or, with --ope, estimate its
    discounted return from data alone, read as the agent's own was unless told otherwise. It acts deterministically,
    or, where its config says eval_stochastic, as it did in training, unless told otherwise."""
    chosen = {name: value for name, value in (("updates", updates), ("gamma", gamma)) if value is not None}
    reading = read_options(columns, action_range, allow)
    if ope is None:
        given = [*chosen, *(name for name, value in reading.items() if value)]
        if given:
            option = given[0].removeprefix("dataset_").replace("_", "-")
            raise ValueError(f"--{option} belongs to an estimate from data: add --ope DATASET")
        play(run, best, 10 if episodes is None else episodes, seed, stochastic, as_json)
    elif episodes is not None or stochastic is not None:
        option = "--episodes" if stochastic is None else "--stochastic" if stochastic else "--deterministic"
        raise ValueError(f"--ope plays no episodes: leave out {option}")
    else:
        estimate(run, ope, best, seed, chosen, reading, as_json)


def play(run: Path, best: bool, episodes: int, seed: int, stochastic: bool | None, as_json: bool) -> None:
    """Whole episodes in the environment that the agent was trained for."""
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent

        agent = load_agent(run, best=best)
        played = agent.evaluate(episodes, seed=seed, deterministic=None if stochastic is None else not stochastic)
    if as_json:
        print_json({"checkpoint": str(agent.path), **played})
        return
    lengths = f"{min(played['lengths'])} to {max(played['lengths'])} steps"
    print_facts({"return": score(played), "lengths": lengths, "checkpoint": str(agent.path)})


def estimate(
    run: Path, source: str, best: bool, seed: int, chosen: dict[str, Any], reading: dict[str, Any], as_json: bool
) -> None:
    """Fitted Q evaluation of a trained agent, beside what the data's own policy earned."""
    with stdout_for_results():
        import torch

        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.ope import evaluate_policy_offline, load_dataset_for
        from rl_training.runtime.callbacks.progress import ShowProgress

        torch.set_num_threads(1)  # as in training: these networks are small, and numbers do not depend on the cores
        agent = load_agent(run, best=best)
        dataset = load_dataset_for(agent, source, **reading)
        found = evaluate_policy_offline(agent, dataset, seed=seed, callbacks=[ShowProgress()], **chosen)
    if as_json:
        print_json({"checkpoint": str(agent.path), "dataset": source, **found._asdict()})
        return
    print_facts(
        {
            "estimate": f"{with_interval(found.estimate, found.interval)}, discounted by {found.gamma:g}, "
            "in the data's own rewards",
            "behaviour": f"{with_interval(found.behaviour_return, found.behaviour_interval)} over {found.episodes} "
            f"episodes, likewise; undiscounted mean {found.behaviour_undiscounted_return:.5g}",
            "unseen": f"{found.unseen_actions:.0%} of the policy's actions are unlike the data's in similar states",
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
    obs: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="An observation, or nested lists of them: '[0.1, 0, 0.2, 0]'; of a Dict, objects."
        ),
    ] = None,
    obs_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Observations in a NumPy file; of a Dict, its parts in a .npz."),
    ] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Draw actions, anew at each call.")] = False,
    episode: Annotated[
        bool, typer.Option("--episode", help="The observations are one episode's, in order: each is remembered.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what a trained agent would do. Actions are in the environment's own units, one for each observation,
    which an agent that remembers takes for the first of an episode unless told otherwise."""
    if obs is not None and obs_file is None:
        rows = parse_obs(obs)
    elif obs_file is not None and obs is None:
        rows = read_obs(obs_file)
    else:
        raise ValueError("give the observations either as --obs JSON or as --obs-file FILE.npy")
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
    """The observations of an episode, each by itself."""
    count = agent.rows(rows).shape[: -len(agent.spec.obs_shape)]
    if not count:
        raise ValueError("--episode takes a list of observations, got a single one: put it in brackets")
    if isinstance(rows, dict):
        return [{name: part[i] for name, part in rows.items()} for i in range(count[0])]
    return list(rows)


def parse_obs(text: str) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Observations from JSON; those of a Dict from an object of its parts."""

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
        raise ValueError("--obs must hold observations of one length, such as [[0.1, 0], [0.2, 0]]") from error
    return numbers(rows, "--obs")


def read_obs(path: Path) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Observations from a file; those of a Dict from an .npz of its parts."""
    import numpy as np

    if not path.is_file():
        raise FileNotFoundError(f"--obs-file: there is no file {path}")
    try:
        rows = np.load(path, allow_pickle=False)
        if not isinstance(rows, np.ndarray):
            with rows:
                return {name: numbers(part, "--obs-file") for name, part in rows.items()}
    except (ValueError, EOFError) as error:
        raise ValueError(f"--obs-file: {path} is not an array of numbers that np.save wrote") from error
    return numbers(rows, "--obs-file")


def numbers(rows: Any, option: str) -> np.ndarray[Any, Any]:
    import numpy as np

    if not isinstance(rows, np.ndarray):
        raise ValueError(f"{option} must hold an array of numbers, got several: name a file that np.save wrote")
    if rows.dtype.kind not in "iuf":
        kind = {"U": "text", "b": "true or false", "O": "null or objects"}.get(rows.dtype.kind, rows.dtype)
        raise ValueError(f"{option} must hold an array of numbers, got {kind}")
    return rows
