"""One training run in its directory: log, callbacks, checkpoints and result."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from rl_training.envs.creation.modules import env_source
from rl_training.envs.same_spaces import changed_space
from rl_training.experiment.assembly import RunParts, interval, new_callbacks
from rl_training.experiment.config.callbacks import callbacks_of
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.experiment.datasets import require_same_data
from rl_training.experiment.machine import differences, facts, versions
from rl_training.experiment.other_options import restore_elsewhere
from rl_training.experiment.result import TrainResult
from rl_training.experiment.run_directory import FIRST_CHECKPOINT, STARTED_FROM, TRACKERS, RunDirectory
from rl_training.messages import Warn
from rl_training.runtime.callbacks.logging import LogMetrics, MetricsFile, damaged_rows, is_intact
from rl_training.runtime.callbacks.saving import SaveCheckpoints, replay_segments, restore_trainer
from rl_training.runtime.callbacks.trackers import Subject, new_trackers
from rl_training.runtime.callbacks.trackers.subject import Row
from rl_training.runtime.callbacks.training import Evaluate
from rl_training.runtime.checkpoints.format import step_name
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import NaNActionsError, TrainerState
from rl_training.runtime.video import TrainingVideos
from rl_training.types import EnvSpec


class TrainingRun:
    """Sets up the callbacks that write into the run directory, and resumes from `checkpoint` if there is one.

    Nothing is written before `begin`.
    """

    def __init__(
        self, directory: RunDirectory, config: TrainConfig, parts: RunParts, *, checkpoint: Checkpoint | None,
        user: Sequence[Callback] = (), warn: Warn,
    ) -> None:  # fmt: skip
        self.directory, self.state, self.pool = directory, parts.state, parts.pool
        self.learner, self.warn = parts.learner, warn
        self.start = None if checkpoint is None else checkpoint.step
        own = None if checkpoint is None or checkpoint.path.parent != directory.checkpoints else checkpoint
        self.own_start = None if own is None else own.step
        self.saved_log: dict[str, Any] | None = None if own is None else own.info.get("log")
        self.trackers = new_trackers(config.log, partial(tracked, directory, config, self.start or 0), warn)
        writers = [self._log, *(tracker.write for tracker in self.trackers)]
        user = [*user, *callbacks_of(config)]
        callbacks = new_callbacks(config, parts, user=user, writers=writers, warn=warn)
        self.log = next(callback for callback in callbacks if isinstance(callback, LogMetrics))
        segments, info = replay_segments(self.state), checkpoint_info(config, parts)
        if checkpoint is not None:
            require_same_data(parts.fingerprint, checkpoint.info, checkpoint.path)
            _require_same_spaces(EnvSpec.from_json(checkpoint.info["spec"]), parts.spec)
            restored = (self.state, callbacks, checkpoint, segments)
            restore = partial(restore_elsewhere, config, parts.spec) if own is None else restore_trainer
            reasons = restore(*restored) + differences(checkpoint.info, info)
            if reasons:
                warn(f"resume is approximate, not exact: {'; '.join(reasons)}")
        every = interval(config.checkpoint_interval, config.duration, 10)
        self.saving = SaveCheckpoints(
            directory.checkpoints, every, callbacks, segments=segments, keep=config.keep_checkpoints, info=info,
            in_population=parts.member is not None, start=self.own_start,
            saved=own.step if own is not None and own.path.name == step_name(own.step) else -1,
            log=lambda: self.metrics.sync(),
        )  # fmt: skip
        for evaluation in (callback for callback in callbacks if isinstance(callback, Evaluate)):
            evaluation.save = self.saving.save_early
            if config.record_video_interval:
                evaluation.video = TrainingVideos(directory.path / "videos", config.record_video_interval, warn).next
        self.callbacks = [*callbacks, self.saving]
        self.record = {**run_record(config, parts), "total_timesteps": self.state.total_timesteps}
        if checkpoint is not None and own is None:
            self.record[STARTED_FROM] = {"checkpoint": str(checkpoint.path.resolve()), "step": checkpoint.step}

    @property
    def starts_elsewhere(self) -> bool:
        """Whether it starts from a checkpoint of another run."""
        return self.start is not None and self.own_start is None

    def begin(self) -> None:
        """Writes run.json and opens the log, without the rows after the step that the run resumes from."""
        kept = self.directory.read("run.json") or {}
        changing = ("total_timesteps", "choices", "dataset", STARTED_FROM)  # without a checkpoint, data may change
        now = {name: self.record[name] for name in changing if name in self.record}
        first = {FIRST_CHECKPOINT: kept.get(FIRST_CHECKPOINT) or self.own_start}
        self.directory.write("run.json", {**self.record, **kept, **now, **first})
        self._keep_damaged_log()
        repeats = self.state.evaluation_due
        self.metrics = MetricsFile(self.directory.metrics, keep_until=self.start or 0, repeats_evaluation=repeats)

    def _keep_damaged_log(self) -> None:
        file, rows = self.directory.metrics, damaged_rows(self.directory.metrics)
        if rows:
            log = self.directory.keep_log(self.start or 0)
            self.warn(f"damaged rows in {file}: {rows}; they are removed, and {log} keeps them")
        elif self.saved_log and not is_intact(file, self.saved_log):
            kept = f"{log} keeps it" if (log := self.directory.keep_log(self.start or 0)) else "it is missing"
            self.warn(f"{file} has changed since the checkpoint at step {self.start} was saved; {kept}")

    def close_log(self) -> None:
        self.metrics.close()
        for tracker in self.trackers:
            tracker.finish(self.state.status)

    def _log(self, row: Row) -> None:
        self.metrics.write(row)

    def record_first_checkpoint(self) -> None:
        """Records durably that a checkpoint exists; see `RunDirectory.had_checkpoints`."""
        record = self.directory.read("run.json") or {}
        if record.get(FIRST_CHECKPOINT) is None:
            self.directory.write("run.json", {**record, FIRST_CHECKPOINT: self.saving.saved})

    def finish(self, *, updates: int, seconds: float, signal: int | None, trained: bool = True) -> TrainResult:
        """Writes and returns the result; `updates` and `seconds` are those of this process."""
        state, checkpoints = self.state, self.directory.checkpoints
        last = self.saving.saved if self.saving.saved >= 0 else self.own_start
        metrics = state.metrics or self.log.last()
        known = (name for name, value in metrics.items() if value is not None and math.isfinite(value))
        result = TrainResult(
            self.directory.path, None if last is None else checkpoints / step_name(last),
            {**dict.fromkeys(metrics), **{name: metrics[name] for name in known}},  # JSON has no NaN
            status=state.status,
            steps=(last or 0) if state.lost else state.global_step,
            updates=state.updates, seconds=seconds, updates_per_second=updates / max(seconds, 1e-9),
            best_checkpoint=None if state.best is None else checkpoints / step_name(state.best.step),
            evaluation=state.evaluation, stop_reason=state.stop_reason, signal=signal, trained=trained,
            env_restarts=0 if self.pool is None else self.pool.restarts,
        )  # fmt: skip
        self.directory.write("result.json", result.to_json())
        return result

    def fail(self, reason: str, *, updates: int, seconds: float) -> None:
        """Writes the result of a run that an error has ended; the same command continues it."""
        self.state.status, self.state.stop_reason = "failed", reason
        self.finish(updates=updates, seconds=seconds, signal=None)

    def cause_of_nan(self) -> str:
        """Returns the losses, or the parts of the model, that are NaN or infinite; an empty text if there are none."""
        losses = [name for name, value in self.log.last().items() if not math.isfinite(value)]
        if losses:
            return f"in the last update, {', '.join(losses)} was NaN or infinite"
        weights = self.learner.model.named_parameters()
        parts = dict.fromkeys(name.partition(".")[0] for name, each in weights if not each.isfinite().all())
        gradients = "check the losses, which were finite, for NaN gradients, such as that of sqrt at 0"
        return f"weights of {', '.join(parts)} are NaN or infinite: {gradients}" if parts else ""


def explained(error: Exception, runs: Sequence[TrainingRun]) -> Exception:
    """Returns an error about NaN actions with their cause in one of the runs; any other error as it is."""
    causes = [run.cause_of_nan() for run in runs] if isinstance(error, NaNActionsError) else []
    return next((NaNActionsError(f"{error}; {cause}") for cause in causes if cause), error)


def _require_same_spaces(began: EnvSpec, now: EnvSpec) -> None:
    if (changed := changed_space(began, now)) is not None:
        raise ConfigError(changed)


class RecordFirstCheckpoint(Callback):
    """Records the first checkpoint once every run has one. Must come after the callbacks of all runs.

    A crash before the record is harmless: the checkpoint itself is found. A crash while only some members of a
    population have a checkpoint leaves no record, and the population starts again.
    """

    def __init__(self, runs: Sequence[TrainingRun]) -> None:
        self.runs, self._done = runs, False

    def on_step_end(self, state: TrainerState) -> None:
        if not self._done and all(run.saving.can_resume for run in self.runs):
            for run in self.runs:
                run.record_first_checkpoint()
            self._done = True

    def on_train_end(self, state: TrainerState) -> None:
        self.on_step_end(state)


def tracked(directory: RunDirectory, config: TrainConfig, start: int, tracker: str) -> Subject:
    """Returns the run as a tracker sees it; its id is stored in the run directory, for a resume."""

    def ids() -> dict[str, Any]:
        return directory.read(TRACKERS) or {}

    return Subject(
        directory.path, start, config.model_dump(mode="json"), lambda: ids().get(tracker, {}),
        lambda values: directory.write(TRACKERS, {**ids(), tracker: values}),
    )  # fmt: skip


def checkpoint_info(config: TrainConfig, parts: RunParts) -> dict[str, Any]:
    """Returns the metadata of a checkpoint, enough to load the agent from the checkpoint alone."""
    return {
        "config": config.model_dump(mode="json"), "spec": parts.spec.to_json(), "versions": versions(),
        **parts.choices._asdict(), "tf32": parts.choices.device.startswith("cuda"), "dataset": parts.fingerprint,
    }  # fmt: skip


def run_record(config: TrainConfig, parts: RunParts) -> dict[str, Any]:
    """Returns the contents of run.json at the start of a run."""
    resume = "exact" if parts.pool is None else parts.pool.resume_kind
    choices = parts.choices._asdict()
    named = {"seed": config.seed, "choices": choices, "dataset": parts.fingerprint, "resume": resume}
    named |= {"compile": parts.compilation} if parts.compilation else {}
    if config.env_id is None:
        return {**facts(), **named, "env_source": None, "environment": None}
    made = {"kind": "id", "can_be_repeated": True} if config.given is None else config.given.record()
    environment = {"name": config.env_id, **made}  # how it was created, and whether the config can create it again
    return {**facts(), **named, "env_source": env_source(config.env_id), "environment": environment}
