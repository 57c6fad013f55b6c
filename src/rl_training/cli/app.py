"""All commands, and the options that come before them."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_training import __version__
from rl_training.cli import agents, bench, configs, data, dreams, info, train
from rl_training.cli.errors import Commands

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich help takes longer to import than all the rest
    # Without a default, typer imports pydantic to learn what a --help means that was not given: twice the time.
    context_settings={"default_map": {"help": False, "configs": {"help": False}, "data": {"help": False}}},
)


@app.callback(invoke_without_command=True)
def rl_training(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from; may stand anywhere.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train reinforcement-learning agents, resume them, evaluate them and ask them for actions."""
    if context.invoked_subcommand is None:
        typer.echo(f"rl-training {__version__}" if version else context.get_help())


app.command()(train.train)
app.command()(train.resume)
app.command()(agents.evaluate)
app.command()(agents.predict)
app.command()(dreams.dream)
app.command()(bench.bench)
app.command()(bench.compare)
app.add_typer(data.app, name="data")
app.add_typer(configs.app, name="configs")
app.command()(info.algos)
app.command()(info.explain)
app.command()(info.doctor)
