"""Options shared by several commands."""

from typing import Annotated

import typer

Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Allow the import of this module, which the run's env_id names; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
