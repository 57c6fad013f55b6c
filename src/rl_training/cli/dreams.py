"""`dream`: plot the frames that a world model imagines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.cli.data import require_plot_path
from rl_training.cli.options import Best, Json, Run, Trust, number
from rl_training.cli.output import print_facts, print_json, stdout_for_results


def dream(
    run: Run,
    best: Best = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The figure to write (.png, .pdf or .svg).")
    ] = Path("dream.png"),
    context: Annotated[int, number("Frames the model sees before it imagines.")] = 5,
    steps: Annotated[int, number("Frames to imagine, at most.")] = 10,
    rows: Annotated[int, number("Episodes to plot.")] = 4,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Random seed for the episodes.")] = 0,
    trust: Trust = None,
    as_json: Json = False,
) -> None:
    """Plot what a world model imagines. Each episode has three rows of frames: observed, reconstructed from every
    frame, and imagined after the first frames from the actions alone. Prints mean squared errors, and compares the
    imagined frames with two baselines: the last frame repeated, and the actions of another episode."""
    require_plot_path(output, "--output")
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.dreams import dream
        from rl_training.reporting.dream_plots import save_dreams

        agent = load_agent(run, best=best, trust=trust or ())
        dreams = dream(agent, context=context, steps=steps, seed=seed)
        path = save_dreams(dreams, output, episodes=rows)
    errors = dreams.summary
    if as_json:
        print_json({"checkpoint": str(agent.path), "picture": str(path), **errors})
        return
    print_facts({**described(errors), "figure": str(path), "checkpoint": str(agent.path)})


def described(errors: Mapping[str, Any]) -> dict[str, str]:
    return {
        "reconstruction error": f"{errors['reconstruction_error']:.4g} (mean squared, per pixel)",
        "imagination error": f"{errors['prediction_error']:.4g} (mean squared, per pixel)",
        "last frame repeated": against(errors, "copy_last", exact="nothing moves in these frames"),
        "other actions": against(errors, "shuffled", exact="the imagined frames do not depend on the actions"),
    }


def against(errors: Mapping[str, Any], baseline: str, *, exact: str) -> str:
    """The error of a baseline, and the ratio of the model's error to it."""
    error, ratio = errors[f"{baseline}_error"], errors[f"of_{baseline}"]
    return f"no error: {exact}" if ratio is None else f"{error:.4g} (the model has {ratio:.2f} times this error)"
