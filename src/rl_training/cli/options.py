"""Options that several commands share: single ones, and groups added by a decorator."""

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory (its newest checkpoint) or a checkpoint.")]
Best = Annotated[bool, typer.Option("--best", help="Use the checkpoint with the best evaluation, not the newest.")]
Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Allow the import of a module that the run's config names; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]

Command = Callable[..., None]


class Once(NamedTuple):
    """Marks an option that is refused if it is given twice, because the first value would be lost."""

    how: str  # to give several values
    takes_data: bool = False  # several files of an unquoted pattern become one pattern; a list of datasets refuses them


LIST = Once("with commas between its values")
DATA = Once("for several files as a pattern", takes_data=True)
DATASETS = LIST._replace(takes_data=True)


def show_help(context: typer.Context) -> None:
    """Callback of a group of commands: prints its help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def number(help_text: str, *, least: int = 1, **settings: Any) -> Any:
    """Declares an option that counts steps, updates, rows or episodes."""

    def parse(text: str) -> int:
        return whole_number(text, least)

    return typer.Option(metavar="N", parser=parse, help=help_text, **settings)


def whole_number(text: str, least: int = 1) -> int:
    """Parses a number of steps: 100000, 100_000 or 1e5."""
    try:
        parsed = int(text) if str(text).replace("_", "").isdigit() else float(text)
    except ValueError:
        parsed = 0
    if parsed < least or parsed % 1:  # also infinity and NaN, whose remainders are NaN
        raise typer.BadParameter(f"{text!r} is not a whole number of at least {least}, such as 100000 or 1e5")
    return int(parsed)


def adds_options(shared: Callable[..., Any], receiver: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds the options of `shared`; the command receives its result as `receiver`."""

    def decorate(command: Command) -> Command:
        own, added = (inspect.signature(function).parameters for function in (command, shared))
        types = {
            name: each
            for function in (command, shared)
            for name, each in typing.get_type_hints(function, include_extras=True).items()
        }
        kept = {**{name: each for name, each in own.items() if name != receiver}, **added}

        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            chosen = shared(**{name: given.pop(name) for name in added})
            command(**given, **{receiver: chosen})

        del wrapped.__dict__["__wrapped__"]  # its signature is the one below
        parameters = [each.replace(annotation=types[name], kind=each.KEYWORD_ONLY) for name, each in kept.items()]
        wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
        wrapped.__annotations__ = {name: types[name] for name in kept}
        return wrapped

    return decorate
