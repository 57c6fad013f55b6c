"""Logs to TensorBoard, in the folder `tensorboard` of a run."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from rl_training.runtime.callbacks.trackers.subject import Row, numbers_of


class TensorBoardTracker:
    """Logs the numbers of a row as scalars; those after `resume_at` that an earlier process logged are dropped."""

    def __init__(self, run: Path, *, resume_at: int) -> None:
        purged = resume_at + 1 if resume_at else None  # the first step that is dropped
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=purged)

    def write(self, row: Row) -> None:
        for name, value in numbers_of(row).items():
            self._writer.add_scalar(name, value, row["step"])

    def finish(self, status: str) -> None:
        self._writer.close()  # ends its thread
