"""How commands end: 0 for success, 2 for the user's mistake, 1 for other errors, 128 + number after a signal."""

from __future__ import annotations

import signal
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from rl_training.experiment.mistakes import MISTAKES, message_of


class Commands(TyperGroup):
    """Turns an error into one message on stderr and an exit code."""

    # Contexts are Any: typer has moved the class that these methods are declared with from one release to another.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args = ["--debug", *(arg for arg in args if arg != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Exit(128 + signal.SIGINT) from error
        except BrokenPipeError:
            raise  # typer ends quietly when nobody reads on
        except Exception as error:
            if hasattr(error, "exit_code"):  # typer's own: a wrong command line, or the end of a command
                raise
            if ctx.params["debug"]:
                traceback.print_exc()
            message = message_of(error).replace("\n", "\n       ")
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(2 if isinstance(error, MISTAKES) else 1) from error
