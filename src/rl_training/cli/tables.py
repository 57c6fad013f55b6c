"""The options of tables, which several commands share."""

from typing import Annotated, Any

import typer

from rl_training.cli.options import adds_options


def _table(
    categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[=A,B]",
            help="Read a text column as categories; =A,B,C sets the order of its values; repeatable.",
        ),
    ] = None,
    csv_dialect: Annotated[
        str | None,
        typer.Option(help="Separators: auto, comma, semicolon, tab, pipe, or semicolon_decimal_comma.", metavar="NAME"),
    ] = None,
    max_gap: Annotated[
        float | None,
        typer.Option(help="End episodes where the time column jumps by more than this.", metavar="SECONDS"),
    ] = None,
) -> dict[str, Any]:  # fmt: skip
    """The options that were given, as in the section `table` of a config."""
    given = {"categories": parse_categories(categories or []), "csv_dialect": csv_dialect, "max_gap": max_gap}
    return {name: value for name, value in given.items() if value not in (None, {})}


takes_table_options = adds_options(_table, "table")  # the command receives them as `table`, a dict


def parse_categories(texts: list[str]) -> dict[str, list[str]]:
    """Parses COLUMN or COLUMN=A,B,C; `a,b` without values names two columns."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name.strip() or (equals and not values.strip()):
            raise ValueError(f"--categories must be COLUMN or COLUMN=A,B,C, got {text!r}")
        if equals:
            found[name.strip()] = [value.strip() for value in values.split(",")]
        else:
            found |= {each.strip(): [] for each in name.split(",")}
    return found
