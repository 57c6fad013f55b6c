"""`configs`: the configs that come with the package."""

from __future__ import annotations

from itertools import takewhile
from typing import Annotated

import typer

from rl_training.cli.output import print_wrapped

app = typer.Typer(help="List, show or copy the configs that come with the package.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `configs ls` lists, such as iql/pendulum.")]


@app.callback(invoke_without_command=True)
def configs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def ls() -> None:
    """List the names, and what each is for."""
    from rl_training.experiment.config.packaged import packaged_configs

    names = packaged_configs()
    widest = max(map(len, names))
    for name in names:
        print_wrapped(f"{name:<{widest}}  ", opening_comment(name))


def opening_comment(name: str) -> str:
    from rl_training.experiment.config.packaged import packaged_config_text

    lines = takewhile(lambda line: line.startswith("#"), packaged_config_text(name).splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines)


@app.command()
def show(name: Name) -> None:
    """Print a config as it is, comments and all."""
    from rl_training.experiment.config.packaged import packaged_config_text

    typer.echo(packaged_config_text(name), nl=False)


@app.command()
def copy(
    name: Name,
    dest: Annotated[str, typer.Argument(metavar="DEST", help="A new file, or a folder to put it in.")],
) -> None:
    """Copy a config to where it can be edited. Train it with `rl-training train FILE.yaml`."""
    from rl_training.experiment.config.packaged import copy_config

    path = copy_config(name, dest)
    typer.echo(f"{path}\ntrain it with: rl-training train {path}")
