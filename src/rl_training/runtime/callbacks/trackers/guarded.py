"""Keeps trackers from affecting training: errors are one warning, and random states are restored."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

from rl_training.messages import Warn, describe_error
from rl_training.runtime.callbacks.trackers.subject import Row, Subject, Tracker


def _open_tensorboard(subject: Subject) -> Tracker:
    from rl_training.runtime.callbacks.trackers.tensorboard_tracker import TensorBoardTracker

    return TensorBoardTracker(subject.path, resume_at=subject.start)


def _open_wandb(subject: Subject) -> Tracker:
    from rl_training.runtime.callbacks.trackers.wandb_tracker import WandbTracker

    return WandbTracker(subject)


def _open_mlflow(subject: Subject) -> Tracker:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the only local store without a database package
    from rl_training.runtime.callbacks.trackers.mlflow_tracker import MlflowTracker

    return MlflowTracker(subject)


OPENERS: dict[str, Callable[[Subject], Tracker]] = {
    "tensorboard": _open_tensorboard, "wandb": _open_wandb, "mlflow": _open_mlflow,
}  # fmt: skip
OPTIONAL = ("tensorboard",)  # the default: without its package a run logs to metrics.jsonl alone


class GuardedTracker:
    """Opens a tracker at the first row and passes rows on to it, until an error."""

    def __init__(self, name: str, open_tracker: Callable[[], Tracker], warn: Warn) -> None:
        self.name, self.warn, self._open = name, warn, open_tracker
        self._tracker: Tracker | None = None
        self._failed = False

    def write(self, row: Row) -> None:
        with self._guarded():
            if not self._failed:
                self._tracker = self._tracker or self._open()
                self._tracker.write(row)

    def finish(self, status: str) -> None:
        tracker, self._tracker = self._tracker, None
        with self._guarded():
            if tracker is not None:
                tracker.finish(status)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            yield
        except (Exception, SystemExit) as error:
            if not self._failed:
                self.warn(f"{self.name} failed and logs nothing more; training continues: {describe_error(error)}")
            self._failed = True
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])


def new_trackers(names: Sequence[str], subjects: Callable[[str], Subject], warn: Warn) -> list[GuardedTracker]:
    """Returns the trackers of these names; raises ImportError if a package is missing, except for TensorBoard's."""
    found = []
    for name in (each for each in dict.fromkeys(names) if each in OPENERS):
        if find_spec(name) is None:
            if name in OPTIONAL:
                continue
            raise ImportError(f'log: {name} is not installed: pip install "rl-training[{name}]"')
        found.append(GuardedTracker(name, partial(OPENERS[name], subjects(name)), warn))
    return found
