"""Hardware, time and commands of a report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.reporting.report.groups import Gathered, Member, ReportGroup, finite
from rl_training.reporting.report.texts import duration_text, number_text, short_text
from rl_training.reporting.stored_runs import seed_ranges

PROGRAMS = ("rl-training", "__main__.py")


class Machine(NamedTuple):
    hardware: str
    versions: str
    commit: str
    runs: int


class GroupTime(NamedTuple):
    number: int
    label: str
    device: str
    seconds: str  # of all seeds
    rate: str
    steps: str


class GroupCommands(NamedTuple):
    number: int
    label: str
    commands: list[str]
    note: str


def machines(gathered: Gathered) -> list[Machine]:
    found: dict[tuple[str, str, str], int] = {}
    for group in gathered.groups:
        for member in group.members:
            record = _record(group, member)
            key = (_hardware(record), _versions(record), str(record.get("git") or member.facts.get("commit") or ""))
            found[key] = found.get(key, 0) + 1
    return [Machine(*key, runs) for key, runs in found.items()]


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


def group_times(gathered: Gathered) -> list[GroupTime]:
    return [_time(group) for group in gathered.groups]


def _time(group: ReportGroup) -> GroupTime:
    known = [(member, seconds) for member in group.members if (seconds := member_seconds(member)) is not None]
    rates = [member.step / seconds for member, seconds in known if seconds > 0 and member.step]
    choices = [_mapping(_record(group, member), "choices") for member in group.members]
    devices = dict.fromkeys(str(each["device"]) for each in choices if "device" in each)
    total = duration_text(group_seconds(group)) if known else ""
    return GroupTime(
        group.number, group.name, ", ".join(devices), total,
        number_text(sum(rates) / len(rates), 0) if rates else "", f"{sum(member.step for member in group.members):,}",
    )  # fmt: skip


def group_seconds(group: ReportGroup) -> float:
    """Time of all seeds. Seeds of a population are trained together and have the same time, which counts once."""
    return sum({seconds for member in group.members if (seconds := member_seconds(member)) is not None})


def member_seconds(member: Member) -> float | None:
    """Time of the run: from its result, or from the times in the log of a run without one."""
    if member.is_finished and (seconds := finite(member.facts.get("seconds"))) is not None:
        return seconds
    rows = [] if member.run is None else member.run.rows
    times = [time for row in rows if (time := finite(row.get("time"))) is not None]
    return max(times) - min(times) if len(times) > 1 else finite(member.facts.get("seconds"))


def group_commands(gathered: Gathered) -> list[GroupCommands]:
    return [_commands(group) for group in gathered.groups]


def _commands(group: ReportGroup) -> GroupCommands:
    number, name = group.number, group.name
    if group.cell is not None and isinstance(group.cell.get("commands"), list):
        return GroupCommands(number, name, [str(each) for each in group.cell["commands"]], "by `bench`")
    typed = list(dict.fromkeys(_typed(group)))
    if typed:
        return GroupCommands(number, name, typed, "")
    run = group.first_run
    if run is None:
        return GroupCommands(number, name, [], "not recorded")
    seeds = seed_ranges([member.seed for member in group.members]).replace(" ", "")
    again = ["train", str(run.path / "config.yaml"), "--seeds", seeds, "--output", "NEW_FOLDER"]
    return GroupCommands(number, name, [shlex.join(["rl-training", *again])], "trained from Python; from its config:")


def _typed(group: ReportGroup) -> Iterator[str]:
    """The command lines that started the runs."""
    for member in group.members:
        words = [] if member.run is None else member.run.record.get("argv") or []
        if isinstance(words, list) and words and Path(str(words[0])).name in PROGRAMS and len(words) > 1:
            yield short_text(shlex.join(["rl-training", *map(str, words[1:])]), 2000)


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


def time_summary(gathered: Gathered) -> str:
    seconds = sum(map(group_seconds, gathered.groups))
    return f"{duration_text(seconds)} of training" if seconds else ""
