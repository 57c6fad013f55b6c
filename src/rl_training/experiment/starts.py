"""Finds the checkpoints that runs resume from, and refuses runs whose checkpoints cannot be used."""

from collections.abc import Sequence

from rl_training.experiment.run_directory import FRESH, RunDirectory
from rl_training.messages import Warn
from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import Checkpoint, checkpoints_by_step, read_checkpoint


class UnusableRunError(CheckpointError, ValueError):
    """A run has saved checkpoints, but none can be used. Starting it again would overwrite them."""


def find_starts(directories: Sequence[RunDirectory], warn: Warn) -> list[Checkpoint] | None:
    """Returns the newest checkpoint of each run, all of the same step, or None if the runs have not saved any."""
    found = [checkpoints_by_step(directory.checkpoints) for directory in directories]
    errors: list[CheckpointError] = []
    for step in sorted(set.intersection(*map(set, found)), reverse=True):
        checkpoints = []
        for paths in found:
            try:
                checkpoints.append(read_checkpoint(paths[step]))
            except CheckpointError as error:
                errors.append(error)
        if len(checkpoints) == len(found):
            for damaged in errors:
                warn(str(damaged))
            return checkpoints
    _refuse(directories, errors)
    return None


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
    other = next((directory for directory in directories if directory not in had), directories[-1])
    raise UnusableRunError(
        f"{had[0].path} and {other.path} cannot continue together, because they have no checkpoint of the same step",
        f"train each seed in a command of its own, or start over with {FRESH}",
    )
