"""Notes about runs of one task that are hard to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.reporting.stored_runs import seeds_text

Results = Sequence[Mapping[str, Any]]  # the result.json of cells, or the same for groups of runs


def comparability_notes(name: str, results: Results) -> list[str]:
    return [note for note in (_unequal_steps(name, results), _other_environments(name, results)) if note is not None]


def _unequal_steps(name: str, results: Results) -> str | None:
    """Reports runs of one task that took over 10 % more steps than others, such as seeds that stopped early."""
    taken = {result["algo"]: [run["steps"] for run in result["runs"] if run.get("steps")] for result in results}
    every = [steps for each in taken.values() for steps in each]
    if not every or max(every) < 1.1 * min(every):
        return None
    named = ", ".join(f"{algo} {_range(steps)}" for algo, steps in taken.items() if steps)
    return f"{name}: the runs took unequal steps ({named})"


def _range(numbers: Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in dict.fromkeys((min(numbers), max(numbers))))


def _other_environments(name: str, results: Results) -> str | None:
    """Reports runs of one task that started with different contents of the file that defines the environment."""
    found: dict[str, dict[str, list[int]]] = {}  # seeds by contents and algorithm
    files: dict[str, None] = {}
    for result in results:
        for run in result["runs"]:
            source = run.get("env_source")
            if isinstance(source, dict) and isinstance(source.get("sha256"), str):
                found.setdefault(source["sha256"], {}).setdefault(result["algo"], []).append(run["seed"])
                files[Path(str(source.get("file"))).name] = None
    if len(found) < 2:
        return None
    versions = (", ".join(f"{algo} {seeds_text(seeds)}" for algo, seeds in each.items()) for each in found.values())
    return (
        f"{name}: {', '.join(files)} was edited between runs, so their environments may differ "
        f"({'; '.join(versions)}); train all of them with one version of the file"
    )
