"""Builds the page of a report from the runs and writes it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rl_training import __version__
from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.files import write_atomically
from rl_training.messages import command, many
from rl_training.reporting.report import configs, data, machines, media, scores, scripts, summary
from rl_training.reporting.report.curves import KINDS, curve_data
from rl_training.reporting.report.gathering import gather
from rl_training.reporting.report.groups import Gathered
from rl_training.reporting.report.texts import bytes_text, duration_text, short_text

KIND_WORDS = {"evaluation": "evaluation", "training": "episodes in training"}
STAMP, WRITTEN = "{stamp of the contents}", "{time of writing}"  # replaced last, so that the time is no change
SECTIONS = {
    "summary": "Summary", "curves": "Learning curves", "profiles": "Performance profiles",
    "configs": "Config differences", "data-check": "Data check", "estimates": "Off-policy estimates",
    "media": "Videos and images", "time": "Hardware and time", "runs": "Runs", "commands": "Commands",
}  # fmt: skip


class Written(NamedTuple):
    path: Path
    runs: int
    groups: int
    bytes: int
    seconds: float
    notes: list[str]
    stamp: str  # of the contents


class Options(NamedTuple):
    by: Sequence[str] = ()
    title: str | None = None
    every: float | None = None  # seconds after which the page is written again
    media_bytes: int = media.BUDGET
    command: str = ""  # which writes the page again
    unless: str = ""  # stamp of the page that is there: it is not written again without a change


def write_report(paths: Sequence[str | Path], out: Path, options: Options | None = None) -> Written:
    """Writes one page about runs, folders of runs and benches; nothing that their configs name is imported."""
    began = time.monotonic()
    options = options or Options()
    names = [str(path) for path in paths]
    gathered = gather(names, options.by)
    if not options.command:
        options = options._replace(command=command("report", *names, "--out", out))
    page = render(gathered, out, options)
    stamp = hashlib.sha256(page.encode(errors="replace")).hexdigest()[:16]
    now = f"{datetime.now(timezone.utc):%d %b %Y, %H:%M:%S} UTC"
    content = page.replace(STAMP, stamp).replace(WRITTEN, now).encode(errors="replace")  # half a surrogate pair
    if stamp != options.unless:
        write_atomically(out, content)
    seconds = time.monotonic() - began
    runs, groups = len(gathered.members), len(gathered.groups)
    return Written(out, runs, groups, len(content), seconds, gathered.notes, stamp)


def render(gathered: Gathered, out: Path, options: Options) -> str:
    library = scripts.library()
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError(scripts.MISSING) from error
    templates = Environment(
        autoescape=True, loader=FileSystemLoader(scripts.ASSETS), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    values = page_values(gathered, out, options)
    plotted = {"groups": _labels(gathered), "curves": values["panels"], "profiles": values["profiles"]}
    code = [*library, scripts.own_script()] if gathered.groups else [scripts.own_script()]
    return templates.get_template("page.html").render(
        **values, css=Markup(scripts.own_style()), data=Markup(scripts.inline_json(plotted)),
        scripts=[Markup(script) for script in code], many=many,
    )  # fmt: skip


def page_values(gathered: Gathered, out: Path, options: Options) -> dict[str, Any]:
    tasks = scores.scored_tasks(gathered)
    panels = [{**panel, "notes": _panel_notes(_labels(gathered), panel)} for panel in curve_data(gathered)]
    config_groups, differences = configs.config_differences(gathered)
    files = media.media(gathered, out, options.media_bytes)
    values = {
        "title": options.title or _title(tasks), "version": __version__, "stamp": STAMP, "every": options.every,
        "facts": _facts(gathered), "notes": gathered.notes, "own_command": options.command,
        "groups": list(enumerate(_labels(gathered))),
        "summary": [(task.name, summary.summary_rows(task)) for task in tasks],
        "normalized": any(entry and entry.normalized is not None for task in tasks for _, entry in task.groups),
        "has_bench": any(group.cell is not None for group in gathered.groups), "pairs": summary.pair_rows(tasks),
        "has_estimates": any(member.estimate is not None for member in gathered.members),
        "panels": panels, "kinds": _kinds(panels), "single": any(len(group.members) == 1 for group in gathered.groups),
        "profiles": [task.profiles for task in tasks if task.profiles is not None],
        "configs": [(group.number, group.name, run.path / "config.yaml", short_text(write_yaml(run.config), 20_000))
                    for group in config_groups if (run := group.first_run) is not None],
        "differences": differences,
        "config_groups": [(group.number, group.name) for group in config_groups],
        "datasets": data.checked_datasets(gathered),
        "estimates": data.estimates(gathered),
        "media": [(*key, list(each)) for key, each in groupby(files, itemgetter("number", "group"))],
        "media_limit": bytes_text(options.media_bytes),
        "times": [machines.group_time(group) for group in gathered.groups],
        "machines": machines.machines(gathered), "problems": machines.problems(gathered),
        "runs": summary.run_rows(gathered),
        "commands": [(group.number, group.name, *machines.group_commands(group)) for group in gathered.groups],
    }  # fmt: skip
    return {**values, "sections": _sections(values)}


def _sections(values: dict[str, Any]) -> list[tuple[str, str]]:
    """The sections that have contents, in the order of the page."""
    estimated = values["estimates"].rows or values["estimates"].commands
    contents = {
        "curves": "panels",
        "profiles": "profiles",
        "configs": "configs",
        "data-check": "datasets",
        "media": "media",
    }
    shown = {name: bool(values[key]) for name, key in contents.items()} | {"estimates": bool(estimated)}
    return [(name, label) for name, label in SECTIONS.items() if shown.get(name, True)] if values["summary"] else []


def _title(tasks: Sequence[scores.ScoredTask]) -> str:
    names = [task.name for task in tasks]
    return ", ".join(names) if 0 < len(names) <= 3 else f"Report of {len(names)} tasks" if names else "Report"


def _facts(gathered: Gathered) -> list[str]:
    members, seconds = gathered.members, sum(map(machines.group_seconds, gathered.groups))
    counts = [f"{many(len(members), 'run')} in {many(len(gathered.groups), 'group')}",
              summary.states_text(members), f"{duration_text(seconds)} of training" if seconds else ""]  # fmt: skip
    return [*(filter(None, counts) if members else ()), f"written {WRITTEN}", f"rl-training {__version__}"]


def _kinds(panels: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (kind, KIND_WORDS[kind])
        for kind in KINDS
        if any(kind in group for panel in panels for group in panel["groups"])
    ]


def _labels(gathered: Gathered) -> list[str]:
    return list(dict.fromkeys(group.label for group in gathered.groups))


def _panel_notes(labels: Sequence[str], panel: dict[str, Any]) -> list[str]:
    def named(entries: list[dict[str, Any]]) -> str:
        return ", ".join(labels[entry["group"]] for entry in entries)

    notes = []
    if unevaluated := [entry for entry in panel["groups"] if "evaluation" not in entry]:
        notes.append(f"No evaluations, so returns of episodes in training are drawn: {named(unevaluated)}")
    if single := [
        entry for entry in panel["groups"] if all(len(entry.get(kind, {}).get("seeds", ())) < 2 for kind in KINDS)
    ]:
        notes.append(f"One seed, so no band: {named(single)}")
    return notes
