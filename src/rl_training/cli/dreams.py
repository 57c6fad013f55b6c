"""`dream`: what a world model expects to see, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training.cli.agents import Best, Run
from rl_training.cli.data import require_plot_path
from rl_training.cli.options import Json
from rl_training.cli.output import print_facts, print_json, stdout_for_results


def dream(
    run: Run,
    best: Best = False,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.png", help="The picture.")] = Path(
        "dream.png"
    ),
    context: Annotated[int, typer.Option(metavar="N", min=1, help="Frames the model sees before it dreams.")] = 5,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Frames it foresees, at most.")] = 10,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Episodes to draw.")] = 4,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Of the episodes.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw what a world model dreams. For each episode three lines: what was seen; the same as the model saw it; and
    what it foresaw from the first frames on (left of the white mark), told only what was done. Its error is set
    against two plain guesses: that the last frame stays, and its own when told what was done in another episode."""
    require_plot_path(output, "--output")
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.dreams import dream, strip
        from rl_training.reporting.png import write_png

        agent = load_agent(run, best=best)
        found = dream(agent, context=context, steps=steps, seed=seed)
        path = write_png(output, strip(found, rows))
    told = found.summary
    if as_json:
        print_json({"checkpoint": str(agent.path), "picture": str(path), **told})
        return
    print_facts(
        {
            "error": f"{told['prediction_error']:.4g} by pixel, squared",
            "copy last": beside(told["copy_last_error"], told["of_copy_last"], exact="nothing moves in these frames"),
            "shuffled": beside(told["shuffled_error"], told["of_shuffled"], exact="the model foresees them all"),
            "picture": str(path),
            "checkpoint": str(agent.path),
        }
    )


def beside(error: float | None, ratio: float | None, *, exact: str) -> str:
    """The error of a plain guess, and the model's as a share of it; where there is none, no share tells anything."""
    return f"no error: {exact}" if ratio is None else f"{error:.4g}; the model's is {ratio:.2f} of it"
