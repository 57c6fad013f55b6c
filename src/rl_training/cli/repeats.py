"""Refuses a list or a dataset that is given twice: the first one would be lost without a message."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

LISTS, DATA = ("A,B", "0,1,2", "0-2", "0-4", "100-104", "F,G"), ("SRC", "DATASET")  # metavars of such options


class SingleLists(TyperCommand):
    # Contexts and parameters are Any: their classes differ between typer releases.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for param in order:
            if order.count(param) > 1 and param.metavar in (*LISTS, *DATA) and not param.multiple:
                how = "with commas between its values" if param.metavar in LISTS else "for several files as a pattern"
                raise ValueError(f"{param.opts[0]} is given {order.count(param)} times; give it once, {how}")
        return super().parse_args(ctx, args)


def refuse_repeats(app: typer.Typer) -> None:
    """Makes every command of an app refuse repeated lists."""
    for command in app.registered_commands:
        command.cls = SingleLists
    for group in app.registered_groups:
        if group.typer_instance is not None:
            refuse_repeats(group.typer_instance)
