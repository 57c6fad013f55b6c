"""Refuses a list or a dataset that is given twice, which would lose the first one, and joins files of a dataset."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from rl_training.cli.globs import join_files
from rl_training.cli.options import DATA, DATASETS, Once


class SingleLists(TyperCommand):
    function: ClassVar[Callable[..., Any]]  # the command, whose annotations mark the options

    # Contexts are Any: their class differs between typer releases.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        once = marked(self.function)
        data, lists = ({each for param in self.params if once.get(param.name or "") == kind for each in param.opts}
                       for kind in (DATA, DATASETS))  # fmt: skip
        args = join_files(args, data, lists)
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            if order.count(param) > 1 and param.name in once:
                how = once[param.name].how
                raise ValueError(f"{param.opts[0]} is given {order.count(param)} times; give it once, {how}")
        return super().parse_args(ctx, args)


def marked(function: Callable[..., Any]) -> dict[str, Once]:
    """The parameters of a command that are marked by Once."""
    types = typing.get_type_hints(function, include_extras=True)
    marks = ((name, mark) for name, each in types.items() for mark in getattr(each, "__metadata__", ()))
    return {name: mark for name, mark in marks if isinstance(mark, Once)}


def refuse_repeats(app: typer.Typer) -> None:
    """Makes every command of an app refuse repeated lists."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.cls = type("SingleLists", (SingleLists,), {"function": staticmethod(command.callback)})
    for group in app.registered_groups:
        if group.typer_instance is not None:
            refuse_repeats(group.typer_instance)
