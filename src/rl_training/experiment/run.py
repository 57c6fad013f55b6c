"""One run from its config to its result: started, continued, stopped cleanly, and told in one object."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rl_training.experiment.agent import find_checkpoint, say, step_name
from rl_training.experiment.assembly import Assembly, assemble, interval, new_callbacks
from rl_training.experiment.config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.machine import Choices, choose, differences, facts, versions
from rl_training.experiment.run_directory import RunDirectory
from rl_training.runtime.checkpoint import Checkpoint, newest_checkpoint
from rl_training.runtime.engine import Callback, train
from rl_training.runtime.logging import LogMetrics, MetricsFile, tensorboard_writer
from rl_training.runtime.progress import ShowProgress
from rl_training.runtime.saving import SaveCheckpoints, replay_segments, restore_trainer

Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainResult:
    run_dir: Path
    checkpoint_path: Path | None
    metrics: dict[str, float | None]
    status: str = "finished"
    steps: int = 0
    updates: int = 0
    updates_per_second: float = 0.0
    seconds: float = 0.0  # since it was started or last resumed
    best_checkpoint: Path | None = None
    evaluation: dict[str, Any] | None = None
    stop_reason: str | None = None
    signal: int | None = field(default=None, compare=False)  # the signal that asked it to stop

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "run_dir": str(self.run_dir),
            "checkpoint": None if self.checkpoint_path is None else str(self.checkpoint_path),
            "best_checkpoint": None if self.best_checkpoint is None else str(self.best_checkpoint),
            "steps": self.steps,
            "updates": self.updates,
            "updates_per_second": self.updates_per_second,
            "seconds": self.seconds,
            "metrics": self.metrics,
            "evaluation": self.evaluation,
            "stop_reason": self.stop_reason,
        }

    @classmethod
    def from_json(cls, run_dir: Path, values: dict[str, Any]) -> TrainResult:
        """Of a run that may have moved since: paths are taken relative to where it lies now."""
        at = {name: values[name] and run_dir / Path(values[name]).relative_to(values["run_dir"])
              for name in ("checkpoint", "best_checkpoint")}  # fmt: skip
        same = ("metrics", "status", "steps", "updates", "updates_per_second", "seconds", "evaluation", "stop_reason")
        return cls(
            run_dir, at["checkpoint"], best_checkpoint=at["best_checkpoint"], **{name: values[name] for name in same}
        )


def default_directory(config: TrainConfig) -> Path:
    subject = config.env_id or (Path(config.dataset).stem if isinstance(config.dataset, str) else "data")
    return Path("runs") / f"{config.algo}-{subject.replace('/', '-')}-s{config.seed}"


def run_training(
    config: TrainConfig, *, callbacks: Sequence[Callback] = (), fresh: bool = False, quiet: bool = True,
    start_from: Checkpoint | Path | str | None = None, say: Say = say,
) -> TrainResult:  # fmt: skip
    """Start the run of this config, or continue it, or tell again how it ended."""
    config = parse_config(config)
    directory = RunDirectory(config.output_dir or default_directory(config))
    with directory.locked():
        directory.check(config, fresh=fresh)
        return _run(directory, config, None, callbacks, fresh=fresh, quiet=quiet, start_from=start_from, say=say)


def resume_run(
    path: Path | str,
    *,
    steps: int | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = True,
    say: Say = say,
) -> TrainResult:
    """Go on with a run, to its end or to `steps`, as if it had never stopped."""
    directory = RunDirectory(path)
    config = directory.config()
    if config is None:
        raise ConfigError(f"{directory.path} is not a run: it has no config.yaml")
    with directory.locked():
        return _run(directory, config, steps, callbacks, fresh=False, quiet=quiet, start_from=None, say=say)


def _run(
    directory: RunDirectory, config: TrainConfig, steps: int | None, callbacks: Sequence[Callback], *,
    fresh: bool, quiet: bool, start_from: Checkpoint | Path | str | None, say: Say,
) -> TrainResult:  # fmt: skip
    record, ended = ({}, None) if fresh else (directory.read("run.json") or {}, directory.read("result.json"))
    total = steps or record.get("total_timesteps") or config.total_timesteps
    if ended and ended["status"] != "stopped" and ended["steps"] >= (steps or 0):
        return TrainResult.from_json(directory.path, ended)
    choices = Choices(**record["choices"]) if "choices" in record else choose(config)
    torch.set_num_threads(choices.threads)
    parts = assemble(config, choices, total_timesteps=total)
    try:
        directory.begin(config, fresh=fresh)  # only now: a mistake in the config must not cost the run that was here
        checkpoint = _find_start(directory, start_from, say)
        info = {"config": config.model_dump(mode="json"), "spec": parts.spec.to_json(), "versions": versions(),
                "device": choices.device, "threads": choices.threads,
                "dataset": None if parts.dataset is None else parts.dataset.fingerprint()}  # fmt: skip
        about = {**facts(), "seed": config.seed, "choices": choices._asdict(), "dataset": info["dataset"],
                 "resume": "exact" if parts.pool is None else parts.pool.resume_kind}  # fmt: skip
        directory.write("run.json", {**about, **record, "total_timesteps": total})
        return _train(directory, config, parts, choices, checkpoint, info, callbacks, quiet=quiet, say=say)
    finally:
        parts.close()


def _find_start(directory: RunDirectory, start_from: Checkpoint | Path | str | None, say: Say) -> Checkpoint | None:
    newest = newest_checkpoint(directory.checkpoints, on_damaged=say) if directory.checkpoints.is_dir() else None
    if newest is not None or start_from is None:
        return newest
    return start_from if isinstance(start_from, Checkpoint) else find_checkpoint(Path(start_from), warn=say)


def _train(
    directory: RunDirectory, config: TrainConfig, parts: Assembly, choices: Choices, checkpoint: Checkpoint | None,
    info: dict[str, Any], user: Sequence[Callback], *, quiet: bool, say: Say,
) -> TrainResult:  # fmt: skip
    state, start = parts.state, 0 if checkpoint is None else checkpoint.step
    metrics = MetricsFile(directory.metrics, keep_until=start)
    board = tensorboard_writer(directory.path / "tensorboard", resume_at=start)
    writers = [metrics.write] + ([] if board is None else [board])
    callbacks = new_callbacks(config, parts, choices, user=user, writers=writers)
    segments = replay_segments(state)
    if checkpoint is not None:
        _check_dataset(checkpoint, info)
        reasons = restore_trainer(state, callbacks, checkpoint, segments) + differences(checkpoint.info, info)
        if reasons:
            say(f"resume is approximate, not exact: {'; '.join(reasons)}")
    every = interval(config.checkpoint_interval, config.total_timesteps, 10)
    saving = SaveCheckpoints(
        directory.checkpoints, every, callbacks, segments=segments, keep=config.keep_checkpoints, info=info
    )
    shown = [] if quiet else [ShowProgress()]
    began, updates = time.perf_counter(), state.updates
    try:
        with stopping_on_signals(state) as caught:
            train(state, [*callbacks, *shown, saving])
    finally:
        metrics.close()
    seconds = time.perf_counter() - began
    rate = (state.updates - updates) / max(seconds, 1e-9)
    result = TrainResult(
        directory.path, directory.checkpoints / step_name(saving.saved), state.metrics or _last_metrics(callbacks),
        status=state.status, steps=state.global_step, updates=state.updates, updates_per_second=rate, seconds=seconds,
        best_checkpoint=None if state.best is None else directory.checkpoints / step_name(state.best.step),
        evaluation=state.evaluation, stop_reason=state.stop_reason, signal=caught[0] if caught else None,
    )  # fmt: skip
    directory.write("result.json", result.to_json())
    return result


def _last_metrics(callbacks: Sequence[Callback]) -> dict[str, float | None]:
    """Of a run stopped before its first row was due."""
    latest = next(callback.latest for callback in callbacks if isinstance(callback, LogMetrics))
    return {name: float(value.mean()) for name, value in latest.items()}


def _check_dataset(checkpoint: Checkpoint, info: dict[str, Any]) -> None:
    if checkpoint.info.get("dataset") != info["dataset"]:
        raise ConfigError("the dataset is not the one this run began with: its rows have changed")


@contextmanager
def stopping_on_signals(state: Any) -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C ask for a stop at the next step boundary; a second one ends the process at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def stop(number: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        state.request_stop(f"asked to stop by {signal.Signals(number).name}")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
