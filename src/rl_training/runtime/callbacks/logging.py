"""Logs metrics to metrics.jsonl and the trackers; only here are metrics copied from the device."""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.envs.device.contract import TensorPool
from rl_training.envs.pools.group import Episode
from rl_training.envs.pools.members import MemberPool
from rl_training.envs.pools.pool import EnvPool
from rl_training.files import write_atomically
from rl_training.runtime.callbacks.trackers.subject import Row
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import CollectResult, DivergedError, TrainerState
from rl_training.types import Metrics, UpdateResult

TIME_FIELDS = ("time", "steps_per_second", "updates_per_second")  # fields that differ between identical runs


class MetricsFile:
    """Appends JSON lines. `keep_until` drops rows after that step, so that a resumed run logs no row twice.

    `repeats_evaluation` also drops the evaluation at that step. A crash leaves either the old file or the new one.
    """

    def __init__(self, path: Path, *, keep_until: int | None = None, repeats_evaluation: bool = False) -> None:
        if keep_until is not None and path.exists():
            place = (keep_until, not repeats_evaluation)
            kept = [line for line in _lines(path) if _place(line) <= place]
            write_atomically(path, "".join(f"{line}\n" for line in kept))
        self._file = path.open("w" if keep_until is None else "a", encoding="utf-8", buffering=1)
        written = path.read_bytes()
        self._size, self._digest = len(written), hashlib.sha256(written)

    def write(self, row: Row) -> None:
        line = json.dumps({**row, "time": time.time()}) + "\n"
        self._file.write(line)
        self._size += len(line)  # JSON is ASCII
        self._digest.update(line.encode())

    def sync(self) -> dict[str, Any]:
        """Flushes the rows to disk, for a checkpoint to save; returns their size and checksum."""
        os.fsync(self._file.fileno())
        return {"size": self._size, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        self._file.close()


def is_intact(path: Path, saved: Mapping[str, Any]) -> bool:
    """Whether a log starts with the rows that a checkpoint was saved with; `saved` is the result of `sync`."""
    if not path.exists():
        return not saved["size"]
    with path.open("rb") as file:
        return hashlib.sha256(file.read(saved["size"])).hexdigest() == saved["sha256"]


def damaged_rows(path: Path) -> int:
    """Counts the rows that cannot be read, without a last one that a crash has cut short."""
    return sum(math.isinf(_place(line)[0]) for line in _lines(path)[:-1]) if path.exists() else 0


def _lines(path: Path) -> list[str]:
    """Returns the lines of a log. The last one is empty, or it was cut short."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _place(line: str) -> tuple[float, bool]:
    """The step of a row, and whether it is an evaluation, which follows the metrics of its step."""
    try:
        row = json.loads(line)
        return float(row["step"]), "evaluation" in row
    except (ValueError, KeyError, TypeError):
        return math.inf, True  # damaged


class MembersMetrics(dict[str, Tensor]):
    """Metrics of a population, [members] each, copied from the device once for all members."""

    @cached_property
    def numbers(self) -> dict[str, list[float]]:
        members = max(value.numel() for value in self.values())
        stacked = torch.stack([value.float().expand(members) for value in self.values()])
        return dict(zip(self, stacked.tolist(), strict=True))


class LogMetrics(Callback):
    """Writes a row at each interval: the last metrics of lane and updates, and means over the episodes since then.

    It comes before the schedules, so that it logs their values during the last updates.

    `pool` is given if the environments are in worker processes, for `env_restarts`, or if they are on the device, for
    their episodes.
    """

    name = "log"
    only_when_due = True

    def __init__(
        self, interval: int, *writers: Callable[[Row], None], member: int | None = None,
        pool: EnvPool | MemberPool | TensorPool | None = None,
    ) -> None:  # fmt: skip
        self.interval, self.writers, self.member, self.pool = interval, writers, member, pool
        self.update_metrics: Metrics = {}
        self.skipped_phases: Metrics = {}  # last metrics of phases that the last update did not run
        self.lane_metrics: Metrics = {}
        self.episodes: list[Episode] = []
        self._clock = (time.perf_counter(), 0, 0)

    def on_train_start(self, state: TrainerState) -> None:
        self._clock = (time.perf_counter(), state.global_step, state.updates)

    def on_collect_end(self, state: TrainerState, result: CollectResult) -> None:
        self.episodes += result.episodes
        self.lane_metrics = {**self.lane_metrics, **result.metrics}

    def on_update_end(self, state: TrainerState, result: UpdateResult) -> None:
        missing = [name for name in self.update_metrics if name not in result.metrics]
        self.skipped_phases |= {name: self._of_member(self.update_metrics[name]) for name in missing}
        self.update_metrics = result.metrics

    def on_step_end(self, state: TrainerState) -> None:
        if not (state.passed(self.interval) or state.global_step >= state.total_timesteps):
            return
        state.metrics = self._metrics(state)
        counts = {"step": state.global_step, "updates": state.updates}
        row = {**counts, **state.scheduled, **state.metrics, **self._rates(state)}
        for write in self.writers:
            write(row)
        self.episodes = []

    def _metrics(self, state: TrainerState) -> dict[str, float | None]:
        # First, because its error names the environment that has returned NaN, and not the learning rate.
        finished = self.pool.take_finished().means() if isinstance(self.pool, TensorPool) else {}
        numbers = self.last()
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        if bad:
            raise DivergedError(
                f"training diverged: {', '.join(bad)} is NaN or infinite at step {state.global_step}; lower the "
                "learning rate, scale the rewards, or check the data for invalid values"
            )
        episodes: dict[str, float | None] = {}
        if self.episodes:
            episodes["episode_return"] = sum(e.return_ for e in self.episodes) / len(self.episodes)
            episodes["episode_length"] = sum(e.length for e in self.episodes) / len(self.episodes)
        if self.pool is not None and not isinstance(self.pool, TensorPool):
            episodes["env_restarts"] = self.pool.restarts
        return {**numbers, **episodes, **finished}

    def last(self) -> dict[str, float]:
        """Copies the last metrics from the device, which waits for its pending work."""
        if isinstance(self.update_metrics, MembersMetrics) and self.member is not None:
            numbers = {name: values[self.member] for name, values in self.update_metrics.numbers.items()}
            return {**_numbers(self.skipped_phases), **numbers}
        return _numbers({**self.lane_metrics, **self.skipped_phases, **self.update_metrics})

    def _of_member(self, value: Tensor) -> Tensor:
        return value[self.member] if isinstance(self.update_metrics, MembersMetrics) and value.dim() else value

    def _rates(self, state: TrainerState) -> dict[str, float]:
        now, (then, step, updates) = time.perf_counter(), self._clock
        self._clock = (now, state.global_step, state.updates)
        seconds = max(now - then, 1e-9)
        return {
            "steps_per_second": (state.global_step - step) / seconds,
            "updates_per_second": (state.updates - updates) / seconds,
        }

    def state_dict(self) -> dict[str, Any]:
        latest = {name: self._of_member(value) for name, value in self.update_metrics.items()}
        return {
            "latest": {**self.skipped_phases, **latest}, "fitted": self.lane_metrics,
            "episodes": [list(episode) for episode in self.episodes],
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update_metrics, self.lane_metrics = state["latest"], state["fitted"]
        self.episodes = [Episode(*episode) for episode in state["episodes"]]


def _numbers(metrics: Metrics) -> dict[str, float]:
    if not metrics:
        return {}
    *_, newest = metrics.values()  # those of a checkpoint are on the CPU
    values = torch.stack([value.float().mean().to(newest.device) for value in metrics.values()]).tolist()
    return dict(zip(metrics, values, strict=True))
