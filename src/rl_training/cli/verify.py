"""`verify` repeats the start of a run and compares it byte for byte."""

from dataclasses import asdict
from typing import Annotated

import typer

from rl_training.cli.options import Json, Run, Trust, number
from rl_training.cli.output import print_json, stdout_for_results
from rl_training.messages import many

Steps = Annotated[
    int | None,
    number("Steps to repeat.", least=2, show_default="up to the third logged row with updates"),
]


def verify(run: Run, steps: Steps = None, trust: Trust = None, as_json: Json = False) -> None:
    """Repeat the start of a run, with and without a stop and resume, and report whether all are byte-identical.

    Exit code 0 if they are, 1 if not. Nothing in the run changes.
    """
    with stdout_for_results():
        from rl_training.experiment.agent import run_of
        from rl_training.experiment.verify import verify_run

        found = verify_run(run_of(run), steps=steps, trust=trust or ())
    if as_json:
        print_json({"identical": found.identical, **asdict(found)})
    else:
        length = f"first {many(found.steps, 'step')} ({many(found.updates, 'update')})"
        if found.start:
            length = f"from step {found.start:,}, where the run started from another one, to step {found.steps:,}"
        typer.echo(f"{length}, repeated: {_verdict(found.repeat)}")
        typer.echo(f"stopped half-way and resumed: {_verdict(found.resume)}")
        for reason in found.reasons:
            typer.echo(f"possible cause: {reason}")
    if not found.identical:
        raise typer.Exit(1)


def _verdict(differences: list[str]) -> str:
    more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
    return f"different: {differences[0]}{more}" if differences else "byte-identical"
