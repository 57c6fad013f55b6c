"""Logs to Weights & Biases. Its own environment variables (WANDB_MODE, WANDB_PROJECT, ...) apply."""

import os
from typing import Any, ClassVar

import wandb

from rl_training.runtime.callbacks.trackers.subject import Row, Subject, numbers_of


class WandbTracker:
    """One run of Weights & Biases, which a resume continues by its id. Without a login it logs offline."""

    running: ClassVar[int] = 0  # runs of this process; the seeds of a population are several

    def __init__(self, subject: Subject) -> None:
        known = subject.stored().get("id")
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "rl_training"), dir=str(subject.path), id=known,
            name=os.environ.get("WANDB_NAME", subject.path.name), resume="allow", config=subject.config,
            group=os.environ.get("WANDB_RUN_GROUP", subject.group), mode=_mode(),
            reinit="create_new",  # does not end a run that the user has started
            settings=wandb.Settings(console="off"),  # what the run prints is not captured
        )  # fmt: skip
        WandbTracker.running += 1
        # A resumed run may log some steps again, which wandb's own counter would reject.
        self._run.define_metric("*", step_metric="step")
        if known is None:
            subject.store({"id": self._run.id})

    def write(self, row: Row) -> None:
        self._run.log({"step": row["step"], **numbers_of(row)})

    def finish(self, status: str) -> None:
        WandbTracker.running -= 1
        self._run.summary["status"] = status
        self._run.finish(exit_code=int(status in ("running", "failed")))
        if wandb.run is None and not WandbTracker.running:  # no run of the user or of another seed is left
            wandb.teardown()  # ends wandb's process


def _mode() -> Any:
    """Returns None, which follows WANDB_MODE, or "offline" where wandb would ask for a login."""
    if "WANDB_MODE" in os.environ or wandb.api.api_key:
        return None
    return "offline"
