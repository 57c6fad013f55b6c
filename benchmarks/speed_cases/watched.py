"""Starts `rl-training train` as a user does, follows its log, and computes rates from the times in the log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from command_line import COMMAND

POLL_SECONDS, END_SECONDS = 0.1, 2.0
Row = dict[str, Any]


class Ended(RuntimeError):
    """The command ended with an error."""


def watch(
    arguments: Sequence[str], run: Path, *, window: float | None = None, limit: float | None = None,
    environment: Mapping[str, str] | None = None, prefix: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Trains to the end, or until the log covers `window` seconds after the start; kills it after `limit` seconds.

    Rates are per seed: `steps_per_second` and `updates_per_second` after the start, see `after_start`.
    """
    words = [*prefix, *COMMAND, "train", *arguments, "--output", str(run), "--quiet", "--json"]
    with open(f"{run}.stderr", "w+b") as errors:
        begun, clock = time.time(), time.perf_counter()
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        try:
            code = follow(process, run, window, limit)
        finally:
            end(process)
        total = time.perf_counter() - clock
        errors.seek(0)
        if code:
            raise Ended(errors.read().decode(errors="replace").strip()[-500:] or f"exit code {code}")
    rows = log_rows(run)
    if not rows:
        raise Ended(f"nothing was logged in {total:.0f} s")
    return {**after_start(rows), "first_row_seconds": rows[0]["time"] - begun, "total_seconds": total}


def follow(process: subprocess.Popen[bytes], run: Path, window: float | None, limit: float | None) -> int:
    """Returns the exit code, or 0 if the window or the limit was reached before."""
    start = time.monotonic()
    while (code := process.poll()) is None:
        time.sleep(POLL_SECONDS)
        if limit is not None and time.monotonic() - start > limit:
            return 0
        if window is not None and after_start(log_rows(run))["seconds"] >= window:
            return 0
    return code


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its workers: the second signal ends it without a checkpoint, and it frees shared memory."""
    for _ in range(2):
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def log_rows(run: Path) -> list[Row]:
    """Rows of the log, or of the first seed's, without evaluations and a line that is being written."""
    file = next((path for path in (run / "metrics.jsonl", run / "seed_0" / "metrics.jsonl") if path.exists()), None)
    lines = [] if file is None else file.read_text(encoding="utf-8").split("\n")[:-1]
    return [row for row in map(json.loads, lines) if "evaluation" not in row]


def after_start(rows: Sequence[Row]) -> dict[str, Any]:
    """Rates from the first row after the row with the first updates to the last row.

    Imports, random first steps, compilation and the capture of CUDA graphs are before that row.
    """
    learning = [row for row in rows if row["updates"]][1:]
    if len(learning) < 2:
        return {"steps_per_second": None, "updates_per_second": None, "seconds": 0.0, "steps": 0}
    return rates(learning[0], learning[-1])


def rates_between(rows: Sequence[Row], warm_up: int) -> dict[str, Any]:
    """Rates from the first row at or after this step to the last row."""
    return rates(next(row for row in rows if row["step"] >= warm_up), rows[-1])


def rates(first: Row, last: Row) -> dict[str, Any]:
    seconds, steps = last["time"] - first["time"], last["step"] - first["step"]
    updates = last["updates"] - first["updates"]
    divisor = max(seconds, 1e-9)
    return {
        "steps_per_second": steps / divisor, "updates_per_second": updates / divisor, "seconds": seconds, "steps": steps
    }  # fmt: skip


def seconds_to_return(rows: Sequence[Row], score: float) -> float | None:
    """Seconds from the first logged row to the first with this mean return of training episodes, or None."""
    reached = [row["time"] for row in rows if (row.get("episode_return") or float("-inf")) >= score]
    return reached[0] - rows[0]["time"] if reached else None
