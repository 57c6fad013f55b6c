"""Finds the checkpoints that runs resume from, and refuses runs whose checkpoints cannot be used."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.run_directory import FRESH, STARTED_FROM, RunDirectory, new_name
from rl_training.files import fsync_directory
from rl_training.messages import Warn
from rl_training.runtime.checkpoints.format import CheckpointError, UnreadableCheckpointError
from rl_training.runtime.checkpoints.reading import Checkpoint, checkpoints_by_step, read_checkpoint


class UnusableRunError(UnreadableCheckpointError):
    """A run has saved checkpoints, but none can be used. Starting it again would overwrite them."""


class Starts(NamedTuple):
    """The checkpoint that each run starts from, and the newer ones that cannot be used, with the reasons."""

    checkpoints: Sequence[Checkpoint | None]
    unusable: Sequence[tuple[Path, CheckpointError]] = ()


def find_starts(directories: Sequence[RunDirectory]) -> Starts:
    """Finds the newest step whose checkpoints can be used by all runs; None for each if no run has saved any."""
    found = [checkpoints_by_step(directory.checkpoints) for directory in directories]
    unusable: list[tuple[Path, CheckpointError]] = []
    for step in sorted(set.intersection(*map(set, found)), reverse=True):
        checkpoints = []
        for paths in found:
            try:
                checkpoints.append(read_checkpoint(paths[step]))
            except CheckpointError as error:
                unusable.append((paths[step], error))
        if len(checkpoints) == len(found):
            return Starts(checkpoints, unusable)
    _refuse(directories, [error for _, error in unusable])
    return Starts([None] * len(directories))


def started_from(record: Mapping[str, Any], run: Path) -> Path | None:
    """Returns the checkpoint of another run that this `run` started from, by its run.json; None without one."""
    found = record.get(STARTED_FROM)
    if found is None:
        return None
    if not Path(found["checkpoint"]).is_dir():
        raise ConfigError(f"{run} started from {found['checkpoint']}, which is missing; restore it")
    if (now := read_checkpoint(found["checkpoint"]).step) != found["step"]:
        replaced = f"step {found['step']:,} of {found['checkpoint']}, which holds step {now:,} now"
        raise ConfigError(f"{run} started from {replaced}; restore it")
    return Path(found["checkpoint"])


def set_aside(directories: Sequence[RunDirectory], starts: Starts, warn: Warn) -> None:
    """Keeps what a fallback to older checkpoints would overwrite, and warns.

    A checkpoint that cannot be used is renamed to `step_N.unusable`, which is never read or pruned. The log is copied
    to `metrics.jsonl.before-step-N`, where N is the step that the run falls back to. TensorBoard files are only added.
    """
    if not starts.unusable:
        return
    start = next(checkpoint for checkpoint in starts.checkpoints if checkpoint is not None)
    logs = {directory.checkpoints: directory.keep_log(start.step) for directory in directories}
    for path, error in starts.unusable:
        target = new_name(path.with_name(f"{path.name.partition('.')[0]}.unusable"))
        os.replace(path, target)
        fsync_directory(path.parent)
        log = logs[path.parent]
        kept = "" if log is None else f", and the log so far is kept as {log.name}"
        warn(f"{error.problem}; it is now {target.name}, training resumes from {start.path.name}{kept}")


def _refuse(directories: Sequence[RunDirectory], errors: Sequence[CheckpointError]) -> None:
    """Raises UnusableRunError if one of the runs has ever saved a checkpoint."""
    if errors:
        alone = f"no checkpoint of the run in {directories[0].path} can be used"
        refused = alone if len(directories) == 1 else "these seeds have no step whose checkpoints can all be used"
        raise UnusableRunError(
            f"{refused}: {errors[0].problem}",
            f"{errors[0].advice or 'restore it from a copy'}, or start over with {FRESH}",
        )
    had = [directory for directory in directories if directory.had_checkpoints()]
    if not had:
        return
    if empty := [directory for directory in had if not checkpoints_by_step(directory.checkpoints)]:
        raise UnusableRunError(
            f"{empty[0].path} has saved checkpoints, but {empty[0].checkpoints} "
            f"{'holds none' if empty[0].checkpoints.is_dir() else 'is missing'} now",
            f"restore it from a copy, or start over with {FRESH}",
        )
    raise _not_together(directories, had)


def _not_together(directories: Sequence[RunDirectory], had: Sequence[RunDirectory]) -> UnusableRunError:
    """Returns the error of runs without a common step; `had` are those that have saved checkpoints."""
    new = next((directory for directory in directories if directory not in had), None)
    pair = f"{had[0].path} and {directories[-1].path}"
    problem = (
        f"{pair} cannot continue together, because they have no checkpoint of the same step"
        if new is None
        else f"{new.path} has not started, so it cannot continue together with {had[0].path}"
    )
    began = [_began(directory) for directory in had]
    if new is not None or began[0] is None or began.count(began[0]) == len(began):
        return UnusableRunError(problem, f"train each seed in a command of its own, or start over with {FRESH}")
    seeds = f"--seeds {','.join(map(str, began[0]))} (sweep({began[0]}) in Python)"
    return UnusableRunError(problem, f"continue {seeds} first, then repeat this command, or start over with {FRESH}")


def _began(directory: RunDirectory) -> list[int] | None:
    """Returns the seeds that a run began with: those of its population, or its own."""
    record = directory.read("run.json") or {}
    return record.get("population") or ([record["seed"]] if "seed" in record else None)
