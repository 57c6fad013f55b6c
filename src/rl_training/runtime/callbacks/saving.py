"""Saves checkpoints at each interval, at a new best evaluation and at the end; restores them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.checkpoints.replay_segments import ReplaySegments
from rl_training.runtime.checkpoints.writing import save_checkpoint
from rl_training.runtime.engine import Callback, call
from rl_training.runtime.state import TrainerState


class SaveCheckpoints(Callback):
    """Saves checkpoints. Must be the last callback, so that it saves the final state of the others.

    The members of a population save together at each interval, and alone at a new best evaluation. The last two
    steps that they saved together are not pruned: a population resumes from a step that all members have, and a crash
    may come while some have saved and others have not. `start` is the step that the run resumes from, and `saved`
    the same step if the checkpoint has its final name.
    """

    only_when_due = True

    def __init__(
        self, directory: Path, interval: int, callbacks: Sequence[Callback], *, segments: ReplaySegments, keep: int,
        info: dict[str, Any], in_population: bool = False, start: int | None = None, saved: int = -1,
        log: Callable[[], dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self.directory, self.interval, self.callbacks, self.segments = directory, interval, callbacks, segments
        self.keep, self.info, self.saved, self.in_population = keep, info, saved, in_population
        self.log = log  # called before saving; the checkpoint records its result
        self.shared = [] if start is None else [start]  # steps that all members save, the last two
        self.early = -1  # the step of a checkpoint whose evaluation has not ended

    @property
    def can_resume(self) -> bool:
        """Whether this run, and with it its whole population, has a checkpoint to resume from."""
        return bool(self.shared) if self.in_population else self.saved >= 0

    def on_train_start(self, state: TrainerState) -> None:
        self.early = state.global_step if state.evaluation_due else -1

    def on_step_end(self, state: TrainerState) -> None:
        is_best = state.best is not None and state.best.step == state.global_step
        if is_best and self.saved == state.global_step != self.early:
            return  # saved at this step; a later part of a model fit does not belong to it
        due = state.passed(self.interval) or state.over
        if due or is_best or self.early == state.global_step:
            self.early = -1
            self.save(state, together=due)

    def on_train_end(self, state: TrainerState) -> None:
        if self.saved != state.global_step and not state.lost:
            self.save(state, together=True)

    def save_early(self, state: TrainerState) -> None:
        """Saves during an evaluation; `on_step_end` saves again after it. A population cannot resume from it."""
        if not self.in_population:
            saved = self.saved
            self.save(state, together=False)
            self.saved, self.early = saved, state.global_step

    def save(self, state: TrainerState, *, together: bool) -> Path:
        log = {} if self.log is None else {"log": self.log()}
        self.saved = state.global_step
        self.shared = [*self.shared, self.saved][-2:] if together else self.shared
        protected = {*(() if state.best is None else (state.best.step,)), *(self.shared if self.in_population else ())}
        return save_checkpoint(
            self.directory, state.global_step, trainer_state(state, self.callbacks), info={**self.info, **log},
            replay=self.segments, keep=self.keep, protect=protected,
        )  # fmt: skip


def replay_segments(state: TrainerState) -> ReplaySegments:
    """Returns the segments of this run's replay buffers; offline and on-policy runs have none."""
    return ReplaySegments(state.lane.replay_parts())


def trainer_state(state: TrainerState, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Returns everything that resume needs; evaluation and prediction read only the `learner` group."""
    updater = state.updater.state_dict()
    return {
        "learner": {name: updater.pop(name) for name in ("parameters", "buffers")},
        "updater": updater,
        "lane": state.lane.state_dict(),
        "callbacks": {callback.name: call(callback, "state_dict") for callback in callbacks if callback.name},
        "trainer": state.state_dict(),
    }


def restore_trainer(
    state: TrainerState, callbacks: Sequence[Callback], checkpoint: Checkpoint, segments: ReplaySegments
) -> list[str]:
    """Restores a checkpoint; returns the reasons why the resumed run may differ from an uninterrupted one."""
    saved = checkpoint.state
    segments.restore(checkpoint)
    reasons = state.lane.load_state_dict(saved["lane"])
    if reasons:
        segments.forget()  # restoring has marked the newest transitions as truncated
    for callback in callbacks:
        if callback.name in saved["callbacks"]:
            call(callback, "load_state_dict", saved["callbacks"][callback.name])
    state.load_state_dict(saved["trainer"])
    # Last, because it restores the random generator of the updates.
    state.updater.load_state_dict({**saved["updater"], **saved["learner"]})
    return reasons
