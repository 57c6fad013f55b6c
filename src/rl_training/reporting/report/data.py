"""Dataset checks and off-policy estimates of a report."""

from __future__ import annotations

import glob
import json
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from rl_training.data.datasets.checks import inspect_source
from rl_training.data.datasets.report import DatasetReport
from rl_training.messages import OPE_CAUTION, command
from rl_training.reporting.report.groups import MALFORMED, Gathered, Member, ReportGroup, finite
from rl_training.reporting.report.texts import bytes_text, interval_text, number_text, short_text
from rl_training.reporting.stored_runs import StoredRun
from rl_training.statistics import Interval
from rl_training.types import EnvSpec

MOST_BYTES = 200_000_000  # of a dataset that is checked while a report is written
READ_HERE = (".npz", ".csv", ".csv.gz", ".parquet", ".h5", ".hdf5")  # files; Minari ids may ask a server
ESTIMATES = "ope*.json"  # in a run directory: the output of `evaluate --ope DATA --json`


class Estimate(NamedTuple):
    group: int
    run: str
    dataset: str
    estimate: str
    interval: str
    behaviour: str
    gamma: str
    unseen: str
    warnings: list[str]


class Estimates(NamedTuple):
    rows: list[Estimate]
    caution: str
    commands: list[str]  # which would add an estimate for groups without one


def checked_datasets(gathered: Gathered) -> list[dict[str, Any]]:
    """Checks each dataset file of the runs, with the options and the spaces of the first run that uses it."""
    uses: dict[str, tuple[StoredRun, list[ReportGroup]]] = {}
    for group in gathered.groups:
        if (run := group.first_run) is None:
            continue
        for source in _sources(run.config.get("dataset")):
            _, groups = uses.setdefault(source, (run, []))
            groups.append(group)
    return [_checked(source, run, groups) for source, (run, groups) in uses.items()]


def _sources(dataset: Any) -> Iterator[str]:
    """Files and recipes of the `dataset` key of a config."""
    if isinstance(dataset, list):
        for part in dataset:
            yield from _sources(part)
    elif isinstance(dataset, dict):
        yield str(dataset["source"]) if "source" in dataset else json.dumps(dataset)
    elif dataset is not None:
        yield str(dataset)


def _checked(source: str, run: StoredRun, groups: list[ReportGroup]) -> dict[str, Any]:
    check = "" if source.startswith("{") else command("data", "check", source)
    try:
        report, reason = _check(source, run)
    except (*MALFORMED, ImportError) as error:
        report, reason = None, short_text(str(error))
    users = [(group.number, group.name) for group in groups]
    return {"source": source, "users": users, "command": check, "report": report, "reason": reason}


def _check(source: str, run: StoredRun) -> tuple[DatasetReport | None, str]:
    """The report, or None and the reason why there is none."""
    if source.startswith("{"):
        return None, "collected in the environment when the run started"
    files = _files(source)
    if not files:
        return None, "there is no such file here"
    if (size := sum(map(_size, files))) > MOST_BYTES:
        return None, f"{bytes_text(size)} are too large to check for each report"
    stamp = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    options = {key: run.config.get(key) for key in ("dataset_columns", "action_range", "allow", "table")}
    return _inspect(source, json.dumps(options), _spec_of(run), stamp), ""


def _files(source: str) -> list[Path]:
    """The file, the file of a Minari directory, or the files of a pattern in one folder, since others may take long."""
    path = Path(source)
    found = [path, path / "data" / "main_data.hdf5"]
    if glob.has_magic(source) and not glob.has_magic(str(path.parent)):
        found += sorted(map(Path, glob.glob(source)))
    return [file for file in found if file.is_file() and file.name.endswith(READ_HERE)]


def _size(file: Path) -> int:
    """Bytes to read; those of the columns of an .npz file, which may be compressed."""
    try:
        with ZipFile(file) as columns:
            return sum(column.file_size for column in columns.infolist())
    except (BadZipFile, OSError):
        return file.stat().st_size


@lru_cache(maxsize=32)
def _inspect(source: str, options: str, spec: str | None, stamp: tuple[Any, ...]) -> DatasetReport:
    """Cached by the time and size of the files."""
    given = json.loads(options)
    bounds, columns, allow = given["action_range"], given["dataset_columns"] or {}, tuple(given["allow"] or ())
    known = None if spec is None else EnvSpec.from_json(json.loads(spec))
    action_range = None if bounds is None else tuple(bounds)
    table = given["table"] or {}
    return inspect_source(source, columns=columns, spec=known, action_range=action_range, allow=allow, **table)


def _spec_of(run: StoredRun) -> str | None:
    """The spaces in the newest checkpoint as JSON. Neither the environment nor PyTorch is imported."""
    for manifest in sorted(run.path.glob("checkpoints/step_*/manifest.json"), reverse=True):
        try:
            return json.dumps(json.loads(manifest.read_bytes())["info"]["spec"])
        except MALFORMED:
            continue
    return None


def estimates(gathered: Gathered) -> Estimates:
    rows = [
        estimate
        for group in gathered.groups
        for member in group.members
        for found in _found(member)
        if (estimate := _estimate(group.number, member, found)) is not None
    ]
    estimated = {row.run for row in rows}
    missing = [
        group.first_run
        for group in gathered.groups
        if group.dataset is not None and not estimated & {str(member.path) for member in group.members}
    ]
    return Estimates(
        rows,
        f"{OPE_CAUTION[:1].upper()}{OPE_CAUTION[1:]}.",
        [each for run in missing if run for each in _command(run)],
    )


def _found(member: Member) -> Iterator[Any]:
    """The estimate of the bench, those stored in the run directory, and rankings stored beside it."""
    if member.estimate is not None:
        yield member.estimate
    for file in (*sorted(member.path.glob(ESTIMATES)), *sorted(member.path.parent.glob(ESTIMATES))):
        try:
            found = json.loads(file.read_bytes())
            if "runs" in found:  # of a ranking: an entry for each run, and keys that all share
                runs = [run for run in found["runs"] if Path(run["run_dir"]).resolve() == member.path.resolve()]
                yield from ({**{key: found[key] for key in found if key != "runs"}, **run} for run in runs)
            elif file.parent == member.path:
                yield found
        except MALFORMED:
            continue


def _estimate(number: int, member: Member, found: Any) -> Estimate | None:
    try:
        behaviour = _interval(found.get("behaviour_interval"))
        gamma, unseen = finite(found.get("gamma")), finite(found.get("unseen_actions"))
        return Estimate(
            number, str(member.path), short_text(str(found.get("dataset", ""))), number_text(float(found["estimate"])),
            _interval(found.get("interval")),
            number_text(float(found["behaviour_return"])) + (f" ({behaviour})" if behaviour else ""),
            "" if gamma is None else f"{gamma:g}", "" if unseen is None else f"{unseen:.0%}",
            [short_text(str(warning)) for warning in found.get("warnings") or []],
        )  # fmt: skip
    except MALFORMED:
        return None


def _interval(bounds: Any) -> str:
    return "" if bounds is None else interval_text(Interval(*map(float, bounds)))


def _command(run: StoredRun) -> list[str]:
    source = run.config.get("dataset")
    if not isinstance(source, str):
        return []
    estimate = command("evaluate", run.path, "--ope", source, "--json")
    return [f"{estimate} > {shlex.quote(str(run.path / 'ope.json'))}"]
