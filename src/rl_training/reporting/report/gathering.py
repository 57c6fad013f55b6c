"""Finds the runs of a report and groups them: every run counts, whether it has finished or not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from rl_training.experiment.bench.scores import is_estimate, value_of
from rl_training.experiment.result import is_run
from rl_training.reporting.bench_cells import BenchCell, read_cells
from rl_training.reporting.comparability import comparability_notes
from rl_training.reporting.finding import find
from rl_training.reporting.grouping import BENCH, RUN, cell_group
from rl_training.reporting.report.groups import MALFORMED, Gathered, Member, ReportGroup, finite, points
from rl_training.reporting.report.labels import with_labels
from rl_training.reporting.settings import Setting, settings_of
from rl_training.reporting.stored_runs import StoredRun, read_run, run_directories
from rl_training.reporting.tasks import data_names, task_name

SILENT_SECONDS = 120.0  # without a new row in its log, a run without a result is no longer called training
NAMED = 5  # runs in a note
SLACK = 2.0  # seconds between the last row of a log and the result


def gather(paths: Sequence[str], by: Sequence[str] = ()) -> Gathered:
    """Reads benches, runs, folders of runs and patterns. Folders without runs and damaged runs become notes."""
    found = find(paths)
    notes = [*found.notes, *(f"{path} has no runs yet" for path in found.empty if path not in found.studies)]
    cells = [cell for bench, only in found.benches.values() for cell in _read_cells(bench, only, notes)]
    runs = [run for path in found.runs.values() for run in _read(path, notes)]
    settings = settings_of(runs, by, cells)
    groups = _cells(cells, settings.cells, notes)
    if groups and settings.runs:
        notes.append(f"scores are measured differently: {BENCH} and {RUN}")
    groups += [_from_runs(setting) for setting in settings.runs]
    shown = {member.path for group in groups for member in group.members}
    older = [str(run.path) for run in runs if run.path not in shown]
    notes += settings.notes
    if older:
        named = ", ".join(older[:NAMED]) + (f" and {len(older) - NAMED} more" if len(older) > NAMED else "")
        notes.append(f"left out, because a newer run has the same setting and seed: {named}")
    labelled = with_labels(_with_tasks(groups))
    return Gathered(labelled, [*notes, *_comparability_notes(labelled)])


def _with_tasks(groups: Sequence[ReportGroup]) -> list[ReportGroup]:
    facts = [
        {**(group.cell or {}), "dataset": group.dataset, "runs": [*map(_facts, group.members)]} for group in groups
    ]
    names = data_names(facts)
    return [
        replace(group, task=task_name(group.env, group.dataset, each.get("test"), names))
        for group, each in zip(groups, facts, strict=True)
    ]


def _comparability_notes(groups: Sequence[ReportGroup]) -> list[str]:
    by_task: dict[str, list[dict[str, Any]]] = {}
    for group in groups:
        runs = [_facts(member) for member in group.counted if member.has_final_score]
        by_task.setdefault(group.task, []).append({**(group.cell or {}), "algo": group.label, "runs": runs})
    return [note for task, cells in by_task.items() for note in comparability_notes(task, cells)]


def _facts(member: Member) -> dict[str, Any]:
    steps, record = finite(member.facts.get("steps")), {} if member.run is None else member.run.record
    source = record.get("env_source") or member.facts.get("env_source")
    return {
        "seed": member.seed, "steps": steps and round(steps), "env_source": source, "score": member.estimate,
        "data": record.get("dataset") or member.facts.get("data"), "config": member.run and member.run.config,
    }  # fmt: skip


def _read(path: Path, notes: list[str]) -> Iterator[StoredRun]:
    for directory in run_directories(path):
        try:
            run = read_run(directory)
            as_member(run)
        except MALFORMED as error:
            notes.append(f"{directory} cannot be read: {error}")
        else:
            yield run


def _read_cells(bench: Path, only: set[str] | None, notes: list[str]) -> list[BenchCell]:
    try:
        return read_cells(bench, only)
    except MALFORMED as error:
        notes.append(f"{bench} cannot be read: {error}")
        return []


def _cells(cells: Sequence[BenchCell], options: Sequence[dict[str, Any]], notes: list[str]) -> list[ReportGroup]:
    groups, waiting = [], []
    for cell, chosen in zip(cells, options, strict=True):
        if cell.result is not None:
            group = cell_group(cell, chosen)
            members = [
                _cell_member(Path(path), run) for path, run in zip(group.paths, cell.result["runs"], strict=True)
            ]
            groups.append(ReportGroup(cell.family[0], chosen, "", group.env, group.dataset, members, group.cell))
        elif stored := [*_read(cell.folder, notes)]:
            dataset = cell.cell.dataset or stored[0].dataset
            groups.append(_from_runs(Setting(cell.cell.learner, str(stored[0].env), dataset, chosen, stored)))
        else:
            waiting.append(cell.cell.name)
    if waiting:
        notes.append(f"not started: {', '.join(waiting)}")
    return groups


def _cell_member(path: Path, facts: dict[str, Any]) -> Member:
    score, curve = finite(value_of(facts["score"])), points(facts.get("curve") or [])
    scored: dict[str, Any] = {"bench_score": score, "estimate": facts["score"] if is_estimate(facts["score"]) else None}
    if is_run(path):
        stored = as_member(read_run(path))
        return Member(**{**vars(stored), **scored, "evaluations": curve or stored.evaluations})
    steps = int(facts.get("steps") or 0)
    return Member(facts["seed"], path, None, str(facts.get("status", "finished")), steps, steps, None, curve, [],
                  facts=facts, **scored)  # fmt: skip


def _from_runs(setting: Setting) -> ReportGroup:
    """Keeps the newest of runs with the same seed, because a copy is no further evidence."""
    oldest_first = sorted(map(as_member, setting.runs), key=lambda member: -(member.silent_seconds or 0))
    newest = {member.seed: member for member in oldest_first}
    members = [newest[seed] for seed in sorted(newest)]
    env = None if setting.runs[0].env is None else setting.env
    return ReportGroup(setting.algo, setting.options, "", env, setting.dataset, members)


def as_member(run: StoredRun) -> Member:
    """Raises one of the errors of `MALFORMED` if the files of a run make no sense."""
    if finite(run.step) is None or finite(run.total_steps) is None:
        raise ValueError("its steps are too large")
    log = run.path / "metrics.jsonl"
    written = log.stat().st_mtime if log.exists() else (run.path / "config.yaml").stat().st_mtime
    evaluations = points((each.get("step"), each.get("return_mean")) for each in run.evaluations)
    training = points((row.get("step"), row.get("episode_return")) for row in run.rows)
    silent = max(0.0, time.time() - written)
    return Member(run.seed, run.path, run, _status(run, written, silent), run.step, run.total_steps, silent,
                  evaluations, training, facts=run.result)  # fmt: skip


def _status(run: StoredRun, written: float, silent: float) -> str:
    """A run that continues after it was stopped has rows that are newer than its result."""
    result = run.path / "result.json"
    if run.is_finished:
        return run.status
    if run.result and written <= result.stat().st_mtime + SLACK:
        return run.status
    times = [time for row in run.rows[-20:] if (time := finite(row.get("time"))) is not None]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return "training" if silent < max(SILENT_SECONDS, 5 * max(gaps, default=0)) else "incomplete"
