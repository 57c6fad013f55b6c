"""Exit codes: 0 for success, 2 for a user error, 1 for any other error, 128 + number after a signal."""

import signal
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from rl_training.experiment.user_errors import USER_ERRORS, message_of


class Commands(TyperGroup):
    """Prints an error as one message on stderr and sets the exit code."""

    # Contexts are Any: the class of these parameters differs between typer releases.
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
            raise  # typer exits quietly when the reader of stdout has closed it
        except Exception as error:
            if hasattr(error, "exit_code"):  # typer's own exceptions: usage errors and typer.Exit
                raise
            if ctx.params["debug"]:
                traceback.print_exc()
            message = message_of(error).replace("\n", "\n       ")
            typer.echo(f"error: {message}", err=True)
            raise typer.Exit(2 if isinstance(error, USER_ERRORS) else 1) from error
