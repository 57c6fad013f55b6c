"""`env check`: finds mistakes in an environment before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.cli.options import Json, number
from rl_training.cli.output import print_facts, print_json, print_wrapped, stdout_for_results
from rl_training.messages import many

if TYPE_CHECKING:
    from rl_training.envs.checks.checker import EnvReport

app = typer.Typer(help="Check your environments.", rich_markup_mode=None)


@app.callback()
def env() -> None:
    """Check your environments."""


@app.command()
def check(
    env_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A Gymnasium id, module:Id or module:Class. Modules may be in the current folder."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set env_kwargs.NAME or env_wrappers; repeatable."),
    ] = None,
    steps: Annotated[int, number("Steps with random actions.")] = 500,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds after which a call is interrupted.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Check an environment and list its mistakes, each with the file and line of your code. Runs Gymnasium's checker,
    and checks signatures, spaces, values, seeds, time limits, speed and resume.

    Exit code 0 without mistakes, 1 with mistakes, 2 if there is no such environment.
    """
    with stdout_for_results():
        from rl_training.envs.checks.checker import check_env
        from rl_training.experiment.config.overrides import environment_config
        from rl_training.experiment.trust import modules_of
        from rl_training.modules import add_current_folder, approve

        config = environment_config(env_id, settings or [])
        approve(modules_of(config))
        add_current_folder()
        report = check_env(
            env_id, env_kwargs=config.env_kwargs, wrappers=config.env_wrappers, steps=steps, timeout=timeout
        )
    if as_json:
        print_json(report.to_json())
    else:
        print_findings(report)
    if not report.ok:
        raise typer.Exit(1)


def print_findings(report: EnvReport) -> None:
    for label, findings in (("mistake", report.mistakes), ("note", report.notes)):
        for finding in findings:
            print_wrapped(f"{label:<13}", str(finding))
    pace = report.pace
    print_facts({
        "result": "no mistakes" if report.ok else many(len(report.mistakes), "mistake"),
        "steps": None if pace is None else f"{many(pace.steps, 'step')}, {many(pace.episodes, 'episode')}, "
        f"{pace.steps_per_second:,.0f} steps per second",
        "resume": report.resume, "env_workers": report.workers,
    })  # fmt: skip
