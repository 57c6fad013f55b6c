"""All commands, and the options of the program itself."""

from collections.abc import Callable
from typing import Annotated

import typer

from rl_training import __version__
from rl_training.cli import agents, bench, configs, data, dreams, info, train, verify
from rl_training.cli.errors import Commands

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich would take most of the time of --help
    # Without a default for --help, typer imports pydantic, which doubles the time.
    context_settings={"default_map": {"help": False, "configs": {"help": False}, "data": {"help": False}}},
)


@app.callback(invoke_without_command=True)
def rl_training(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; allowed anywhere.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Train, resume, evaluate and compare reinforcement-learning agents."""
    if context.invoked_subcommand is None:
        typer.echo(f"rl-training {__version__}" if version else context.get_help())


COMMANDS: tuple[Callable[..., None], ...] = (
    train.train, train.resume, agents.evaluate, agents.predict, dreams.dream, bench.bench, bench.compare,
    info.algos, info.explain, info.doctor, verify.verify,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(configs.app, name="configs")
