"""`report`: one HTML page about runs and benchmarks."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training.cli.compare import By, Paths
from rl_training.cli.options import Json
from rl_training.cli.output import print_json
from rl_training.experiment.user_errors import USER_ERRORS, message_of
from rl_training.files import require_directory
from rl_training.messages import command, many

if TYPE_CHECKING:
    from rl_training.reporting.report import Options, Written

Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")]
Every = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=1, help="Write the page again at this interval, until Ctrl-C."),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page (default: the environments).")]
MediaSize = Annotated[
    float,
    typer.Option(
        "--media-mb", metavar="MB", min=0, help="Maximum size of the videos and images in the page, in megabytes."
    ),
]

POLL_SECONDS = 0.1


def report(
    paths: Paths, out: Out = Path("report.html"), by: By = None, every: Every = None, title: Title = None,
    media_mb: MediaSize = 1.0, as_json: Json = False,
) -> None:  # fmt: skip
    """Write one HTML page about runs and benchmarks that opens offline: scores, learning curves, performance profiles,
    config differences, data checks, videos, hardware and commands. It includes runs that are still training. Run the
    command again to refresh the page; an open page reloads itself."""
    from rl_training.reporting.report import Options

    if out.suffix not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, got {out}")
    if not math.isfinite(media_mb):
        raise ValueError(f"--media-mb must be a number of megabytes, got {media_mb:g}")
    require_directory(out)
    typed = command(*sys.argv[1:]) if sys.argv[1:2] == ["report"] else ""
    options = Options(by or (), title, every, round(media_mb * 1e6), typed)
    written = write(paths, out, options, as_json)
    if every is not None:
        repeat(paths, out, options, written, as_json)


def write(paths: list[str], out: Path, options: Options, as_json: bool) -> Written:
    from rl_training.reporting.report import write_report

    written = write_report(paths, out, options)
    if written.stamp != options.unless:
        for note in written.notes:
            typer.echo(f"note: {note}", err=True)
        print_written(written, as_json)
    return written


def print_written(written: Written, as_json: bool) -> None:
    if as_json:
        facts = {key: value for key, value in written._asdict().items() if key != "stamp"}
        print_json({**facts, "path": str(written.path)})
        return
    runs = f"{many(written.runs, 'run')} in {many(written.groups, 'group')}"
    typer.echo(f"{written.path}: {runs}, {written.bytes / 1e6:.1f} MB, {written.seconds:.1f} s")


def repeat(paths: list[str], out: Path, options: Options, written: Written, as_json: bool) -> None:
    """Writes the page whenever the runs have changed. Ctrl-C writes it once more, as a page that is final."""
    from rl_training.experiment.processes.signals import caught_signals

    typer.echo(f"refreshed every {options.every:g} s; Ctrl-C ends it", err=True)
    with caught_signals() as caught:  # a KeyboardInterrupt could be lost in a destructor
        while not caught:
            _sleep(options.every or 0, caught)
            try:
                written = write(paths, out, options._replace(unless=written.stamp), as_json)
            except (*USER_ERRORS, OSError) as error:  # the next round may find the files again
                typer.echo(f"not refreshed: {message_of(error)}", err=True)
    write(paths, out, options._replace(every=None), as_json)
    raise typer.Exit(128 + caught[0])


def _sleep(seconds: float, caught: list[int]) -> None:
    end = time.monotonic() + seconds
    while not caught and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
