"""All commands, and the options of the program itself."""

import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rl_training import __version__
from rl_training.cli import (
    bench,
    compare,
    configs,
    data,
    dreams,
    env,
    evaluate,
    export,
    info,
    predict,
    report,
    split,
    train,
    tune,
    verify,
)
from rl_training.cli.repeats import refuse_repeats
from rl_training.experiment.user_errors import USER_ERRORS, message_of


class Commands(TyperGroup):
    """Prints errors on stderr; exit codes: 0 success, 2 user error, 1 other error, 128 + number after a signal."""

    # Contexts are Any: the class of these parameters differs between typer releases.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args = ["--debug", *(arg for arg in args if arg != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            from rl_training.experiment.processes.signals import exit_code_of

            raise typer.Exit(exit_code_of(error)) from error
        except BrokenPipeError:
            raise  # typer exits quietly when the reader of stdout has closed it
        except Exception as error:
            if hasattr(error, "exit_code"):  # typer's own exceptions: usage errors and typer.Exit
                raise
            if ctx.params["debug"]:
                traceback.print_exc()
            message = message_of(error).replace("\n", "\n       ")
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(2 if isinstance(error, USER_ERRORS) else 1) from error


GROUPS = ("configs", "data", "env", "runs")  # commands with commands of their own
app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich would take most of the time of --help
    # Without a default for --help, typer imports pydantic, which doubles the time.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": {"help": False} | {group: {"help": False} for group in GROUPS},
    },
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
    train.train, train.resume, evaluate.evaluate, predict.predict, export.export, dreams.dream, bench.bench,
    compare.compare, report.report, tune.tune, info.algos, info.explain, info.doctor, verify.verify,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
data.app.command()(split.split)
app.add_typer(data.app, name="data")
app.add_typer(env.app, name="env")
app.add_typer(configs.app, name="configs")
app.add_typer(compare.app, name="runs")
refuse_repeats(app)
