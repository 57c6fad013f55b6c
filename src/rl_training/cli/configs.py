"""`configs`: lists, shows and copies packaged configs."""

import re
from itertools import takewhile
from typing import Annotated

import typer

from rl_training.cli.options import show_help
from rl_training.cli.output import print_wrapped
from rl_training.messages import command

app = typer.Typer(help="List, show or copy packaged configs.", rich_markup_mode=None)
app.callback(invoke_without_command=True)(show_help)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `configs ls`, such as iql/pendulum.")]


@app.command()
def ls(
    part: Annotated[str, typer.Argument(metavar="PART", help="Only names that contain PART, such as hopper.")] = "",
) -> None:
    """List the packaged configs, one per line."""
    from rl_training.experiment.config.packaged import packaged_configs

    names = [name for name in packaged_configs() if part.lower() in name]
    if not names:
        raise ValueError(f"no packaged config has {part!r} in its name (rl-training configs ls lists all)")
    widest = max(map(len, names))
    for name in names:
        print_wrapped(f"{name:<{widest}}  ", first_sentence(name))


def first_sentence(name: str) -> str:
    """The first sentence of the comment at the top of a config."""
    from rl_training.experiment.config.packaged import packaged_config_text

    lines = takewhile(lambda line: line.startswith("#"), packaged_config_text(name).splitlines())
    comment = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r"(?<=\.) ", comment, maxsplit=1)[0]


@app.command()
def show(name: Name) -> None:
    """Print a config with its comments."""
    from rl_training.experiment.config.packaged import packaged_config_text

    typer.echo(packaged_config_text(name), nl=False)


@app.command()
def copy(
    name: Name, dest: Annotated[str, typer.Argument(metavar="DEST", help="A new file or an existing folder.")]
) -> None:
    """Copy a config to edit it. Train the copy with `rl-training train FILE.yaml`."""
    from rl_training.experiment.config.packaged import copy_config

    path = copy_config(name, dest)
    typer.echo(f"{path}\ntrain it with: {command('train', path)}")
