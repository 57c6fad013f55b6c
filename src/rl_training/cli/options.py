"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory (its newest checkpoint) or a checkpoint.")]
Best = Annotated[bool, typer.Option("--best", help="The run's best checkpoint by evaluation, not its newest.")]
Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Allow the import of this module, which the run's config names; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]
