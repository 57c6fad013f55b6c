"""Finds the benches and runs at or below the paths of `compare` and `report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_training.experiment.bench.plan import read_plan
from rl_training.experiment.result import is_run
from rl_training.reporting.stored_runs import children, expand, is_bench, run_directories

STUDY, TRIALS = "tune.yaml", "trials"  # file and folder of a study


@dataclass
class Found:
    """Paths as they were given or found, by their resolved path."""

    benches: dict[Path, tuple[Path, set[str] | None]] = field(default_factory=dict)  # with the cells that count
    runs: dict[Path, Path] = field(default_factory=dict)
    studies: dict[Path, int] = field(default_factory=dict)  # runs of trials that are left out
    empty: list[Path] = field(default_factory=list)  # paths without benches and runs

    @property
    def notes(self) -> list[str]:
        studies = [
            f"trials of the study {path} are left out (runs: {count}); their scores are too high: the best of many"
            for path, count in self.studies.items()
        ]
        inside = dict.fromkeys(str(path.parent.parent) for path in self.runs.values() if is_bench(path.parent.parent))
        return studies + [
            f"runs of the bench {bench} have their last evaluation in training as their score; give {bench} for the "
            "scores of the bench" for bench in inside
        ]  # fmt: skip

    def add_bench(self, directory: Path, cell: str | None = None) -> None:
        path, cells = self.benches.get(directory.resolve(), (directory, set()))
        self.benches[directory.resolve()] = path, None if cell is None or cells is None else {*cells, cell}


def find(paths: Sequence[str]) -> Found:
    """Trials of a study count only if a path lies in their folder; a cell's folder stands for that cell alone."""
    found = Found()
    for path in expand(paths):
        bench = path.parent if path.name not in ("", "..") else path.resolve().parent
        name = path.resolve().name
        if is_bench(bench) and name in {cell.name for cell in read_plan(bench).cells()}:
            found.add_bench(bench, name)
        elif not _walk(path, found):
            found.empty.append(path)
    return found


def _walk(path: Path, found: Found) -> bool:
    """Adds what lies at or below a path; returns whether there was anything."""
    if is_bench(path):
        found.add_bench(path)
        return True
    if is_run(path):
        found.runs.setdefault(path.resolve(), path)
        return True
    is_study = (path / STUDY).is_file()
    found_any = False
    for child in children(path):
        if is_study and child.name == TRIALS:
            found.studies[path] = sum(1 for _ in run_directories(child))
        else:
            found_any |= _walk(child, found)
    return found_any
