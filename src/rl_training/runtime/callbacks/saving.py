"""Checkpoints as training goes: at each interval, at a new best evaluation, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState


class SaveCheckpoints(Callback):
    """Must be the last of the callbacks, so that what it saves is what the others have done."""

    def __init__(
        self, directory: Path, interval: int, callbacks: Sequence[Callback], *, segments: ReplaySegments, keep: int,
        info: dict[str, Any],
    ) -> None:  # fmt: skip
        self.directory, self.interval, self.callbacks, self.segments = directory, interval, callbacks, segments
        self.keep, self.info, self.saved = keep, info, -1

    def on_step_end(self, state: TrainerState) -> None:
        new_best = state.best is not None and state.best.step == state.global_step != self.saved
        if state.passed(self.interval) or new_best or state.over:
            self.save(state)

    def on_train_end(self, state: TrainerState) -> None:
        if self.saved != state.global_step:
            self.save(state)

    def save(self, state: TrainerState) -> Path:
        self.saved = state.global_step
        return save_checkpoint(
            self.directory, state.global_step, trainer_state(state, self.callbacks), info=self.info,
            replay=self.segments, keep=self.keep, protect=() if state.best is None else (state.best.step,),
        )  # fmt: skip


def replay_segments(state: TrainerState) -> ReplaySegments:
    """The rings of this run, whose rows are saved beside its state; offline and on-policy runs have none."""
    replay = state.lane.replay
    return ReplaySegments({} if replay is None else replay.parts())


def trainer_state(state: TrainerState, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Everything that resume needs, in groups; evaluation and prediction read `learner` alone."""
    updater = state.updater.state_dict()
    return {
        "learner": {name: updater.pop(name) for name in ("parameters", "buffers")},
        "updater": updater,
        "lane": state.lane.state_dict(),
        "callbacks": {callback.name: callback.state_dict() for callback in callbacks if callback.name},
        "trainer": state.state_dict(),
    }


def restore_trainer(
    state: TrainerState, callbacks: Sequence[Callback], checkpoint: Checkpoint, segments: ReplaySegments
) -> list[str]:
    """Put everything back; returns why what follows may differ from an uninterrupted run, if it may."""
    saved = checkpoint.state
    segments.restore(checkpoint)
    reasons = state.lane.load_state_dict(saved["lane"])
    if reasons:
        segments.forget()  # the newest rows now end their episodes
    for callback in callbacks:
        if callback.name in saved["callbacks"]:
            callback.load_state_dict(saved["callbacks"][callback.name])
    state.load_state_dict(saved["trainer"])
    state.updater.load_state_dict({**saved["updater"], **saved["learner"]})  # last: it holds the noise of the updates
    return reasons
