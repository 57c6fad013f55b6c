"""Hardware, time and commands of a report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rl_training.messages import command, seed_ranges
from rl_training.reporting.report.groups import Gathered, Member, ReportGroup, finite
from rl_training.reporting.report.texts import duration_text, number_text, short_text

PROGRAMS = ("rl-training", "__main__.py")


def machines(gathered: Gathered) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], int] = {}
    for group in gathered.groups:
        for member in group.members:
            record = _record(group, member)
            key = (_hardware(record), _versions(record), str(record.get("git") or member.facts.get("commit") or ""))
            found[key] = found.get(key, 0) + 1
    return [
        {"hardware": hardware, "versions": versions, "commit": commit, "runs": runs}
        for (hardware, versions, commit), runs in found.items()
    ]


def _record(group: ReportGroup, member: Member) -> dict[str, Any]:
    return (group.cell or {}) if member.run is None else member.run.record


def _hardware(record: dict[str, Any]) -> str:
    hardware = _mapping(record, "hardware")
    cores = hardware.get("cores")
    gpu, count = hardware.get("gpu") or "no GPU", f"{cores} cores" if cores else None
    parts = [gpu, count, hardware.get("cpu"), hardware.get("platform")]
    return ", ".join(str(part) for part in parts if part) if hardware else "not recorded"


def _versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in _mapping(record, "versions").items())


def _mapping(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def group_time(group: ReportGroup) -> dict[str, Any]:
    """Device, time of all seeds, steps per second, and steps."""
    known = [(member, seconds) for member in group.members if (seconds := member_seconds(member)) is not None]
    rates = [member.step / seconds for member, seconds in known if seconds > 0 and member.step]
    choices = [_mapping(_record(group, member), "choices") for member in group.members]
    devices = dict.fromkeys(str(each["device"]) for each in choices if "device" in each)
    return {
        "number": group.number, "label": group.name, "device": ", ".join(devices),
        "seconds": duration_text(group_seconds(group)) if known else "",
        "rate": number_text(sum(rates) / len(rates), 0) if rates else "",
        "steps": f"{sum(member.step for member in group.members):,}",
    }  # fmt: skip


def group_seconds(group: ReportGroup) -> float:
    """Time of all seeds. Seeds of a population are trained together, and their time counts once."""
    times: dict[Any, float] = {}
    for member in group.members:
        if (seconds := member_seconds(member)) is not None:
            population = _record(group, member).get("population")
            together = isinstance(population, list) and len(population) > 1
            key = (member.path.parent, str(population)) if together else seconds
            times[key] = max(seconds, times.get(key, 0.0))
    return sum(times.values())


def member_seconds(member: Member) -> float | None:
    """Time of the run, without pauses between a stop and the next start: by its log, or by its result if that is more.

    The result of a run that was resumed has the time since then, and its log ends before the last evaluation.
    """
    stored, logged = finite(member.facts.get("seconds")), _logged_seconds([] if member.run is None else member.run.rows)
    return max((each for each in (stored, logged) if each is not None), default=None)


def _logged_seconds(rows: Iterable[dict[str, Any]]) -> float | None:
    """Sums the intervals of the log; its speeds count from the entry before, or from the start of the process."""
    spent, last_step, last_time = [], 0.0, -math.inf
    for row in rows:
        step, now, speed = (finite(row.get(name)) for name in ("step", "time", "steps_per_second"))
        if step is None or now is None or not speed:
            continue
        spent.append(max(min((step - last_step) / speed, now - last_time), 0.0))
        last_step, last_time = step, now
    return sum(spent) if spent else None


def group_commands(group: ReportGroup) -> tuple[list[str], str]:
    """The commands that trained a group, or would train it again, and a note."""
    if group.cell is not None and isinstance(group.cell.get("commands"), list):
        return [str(each) for each in group.cell["commands"]], "by `bench`"
    if typed := list(dict.fromkeys(_typed(group))):
        return typed, ""
    if (run := group.first_run) is None:
        return [], "not recorded"
    seeds = seed_ranges([member.seed for member in group.members]).replace(" ", "")
    again = ["train", run.path / "config.yaml", "--seeds", seeds, "--output", "NEW_FOLDER"]
    return [command(*again)], "trained from Python; from its config:"


def _typed(group: ReportGroup) -> Iterator[str]:
    """The command lines that started the runs."""
    for member in group.members:
        words = [] if member.run is None else member.run.record.get("argv") or []
        if isinstance(words, list) and words and Path(str(words[0])).name in PROGRAMS and len(words) > 1:
            yield short_text(command(*words[1:]), 2000)


def problems(gathered: Gathered) -> list[tuple[int, str, str]]:
    """Group, run and reason of each run that failed or stopped, from its result."""
    return [
        (group.number, str(member.path), short_text(_reason(member), 1000))
        for group in gathered.groups
        for member in group.members
        if member.status in ("failed", "stopped", "incomplete")
    ]


def _reason(member: Member) -> str:
    where = f"at step {member.step:,} of {member.total_steps:,}"
    if member.status == "incomplete":
        last = datetime.fromtimestamp(time.time() - (member.silent_seconds or 0), timezone.utc)
        return f"no result {where}; the last log entry is of {last:%d %b %Y, %H:%M} UTC"
    reason = str(member.facts.get("stop_reason") or member.status)
    return f"{reason} ({where})"
