"""Compares two runs byte for byte, and repeats the start of a run to verify that it is reproducible."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from rl_training.experiment.agent import find_checkpoint
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.experiment.datasets import require_same_data
from rl_training.experiment.machine import choose, differences, facts
from rl_training.experiment.run import run_population
from rl_training.experiment.run_directory import STARTED_FROM, RunDirectory
from rl_training.experiment.starts import started_from
from rl_training.experiment.trust import Trust, warn_of_changed_source
from rl_training.messages import print_warning
from rl_training.runtime.callbacks.logging import TIME_FIELDS, is_intact
from rl_training.runtime.callbacks.trackers.subject import FLAT
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.checkpoints.format import STATE, step_name
from rl_training.runtime.checkpoints.reading import Checkpoint, checkpoints_by_step, read_checkpoint
from rl_training.runtime.metrics_table import METRICS

LOGGED_ROWS = 3  # rows with updates that `verify_run` repeats if no number of steps is given


@dataclass(frozen=True)
class Verification:
    """Differences found by `verify_run`; none if both lists are empty."""

    steps: int
    updates: int
    repeat: list[str]  # between the run and its repetition
    resume: list[str]  # between the repetition and one that was stopped half-way and resumed
    reasons: list[str]  # facts about this machine that differ from the run's
    start: int = 0  # the step of another run that this run started from

    @property
    def identical(self) -> bool:
        return not self.repeat and not self.resume


def verify_run(path: Path, *, steps: int | None = None, trust: Trust = ()) -> Verification:
    """Repeats the first `steps` of a run on this machine, once without and once with a stop and resume.

    By default it repeats up to the third logged row that has updates. Nothing in the run directory changes.
    Raises CheckpointError or ConfigError if a file of the run is damaged.
    """
    directory = RunDirectory(path)
    config, record = directory.config(trust), directory.read("run.json")
    if config is None or record is None:
        raise ConfigError(f"{path} is not a run directory: it has no config.yaml or no run.json")
    warn_of_changed_source(record, warn=print_warning)
    require_intact(directory)
    rows = _rows(directory.metrics)
    last = steps or _steps_to_repeat(rows, path)
    seeds = record.get("population") or [config.seed]
    member = seeds.index(config.seed)
    configs = _for_this_machine(config, record["choices"], seeds)
    first = 0 if started_from(record, path) is None else record[STARTED_FROM]["step"]
    if last <= first:
        raise ConfigError(f"{path} started at step {first:,} of another run; repeat up to a later step than {last:,}")
    began = {STARTED_FROM: record[STARTED_FROM]} if STARTED_FROM in record else {}
    with TemporaryDirectory(prefix="rl-training-") as folder:
        whole = _train(configs, began, Path(folder, "whole"), [last])[member]
        repeated = RunDirectory(whole).read("run.json") or {}
        require_same_data(repeated["dataset"], record, path)
        halved = _train(configs, began, Path(folder, "halved"), [(first + last) // 2, last])[member]
        end = find_checkpoint(whole)
        logged = [row for row in rows if row["step"] <= end.step]
        repeat = _metric_differences(logged, _rows(whole / METRICS), ignore_new=True)
        repeat += _checkpoint_differences(directory.checkpoints, RunDirectory(whole).checkpoints)
        resume, updates = compare_runs(whole, halved), end.group("updater")["updates"]
    then, now = {**record, **record["choices"]}, {**facts(), **choose(configs[0])._asdict()}
    return Verification(end.step, updates, repeat, resume, differences(then, now) if repeat or resume else [], first)


def require_intact(directory: RunDirectory) -> None:
    """Verifies the checksums of checkpoints, run.json and result.json, and that of the log in the newest checkpoint."""
    for name in ("run.json", "result.json"):
        directory.read(name)
    checkpoints = [read_checkpoint(path) for _, path in sorted(checkpoints_by_step(directory.checkpoints).items())]
    log = checkpoints[-1].info.get("log") if checkpoints else None
    if log is not None and not is_intact(directory.metrics, log):
        raise ConfigError(f"{directory.metrics} has changed since the last checkpoint; restore it from a copy")


def _steps_to_repeat(rows: Sequence[dict[str, Any]], path: Path) -> int:
    if not rows:
        raise ConfigError(f"{path} has no logged rows, so there is nothing to compare; train it further first")
    updated = [row for row in rows if row["updates"]] or rows
    return int(updated[:LOGGED_ROWS][-1]["step"])


def _for_this_machine(config: TrainConfig, choices: dict[str, Any], seeds: Sequence[int]) -> list[TrainConfig]:
    """Returns the config of each seed with the run's device, threads and compilation, as far as they exist here."""
    missing = choices["device"].startswith("cuda") and not torch.cuda.is_available()
    device = "cpu" if missing else choices["device"]
    compile = "on" if choices["compile"] else "off"
    overlap = "on" if choices.get("overlap") else "off"
    machine = {"device": device, "threads": choices["threads"], "compile": compile, "overlap_updates": overlap}
    return [config.model_copy(update={**machine, "seed": seed, "log": ()}) for seed in seeds]


def _train(configs: Sequence[TrainConfig], record: dict[str, Any], folder: Path, stops: Sequence[int]) -> list[Path]:
    """Trains up to each of `stops` in turn, in runs that begin with this `record`; returns the run directories."""
    runs = [folder / f"seed_{config.seed}" for config in configs]
    inside = [config.model_copy(update={"output_dir": str(run)}) for config, run in zip(configs, runs, strict=True)]
    for directory, config in zip(map(RunDirectory, runs), inside, strict=True):
        directory.path.mkdir(parents=True)
        directory.begin(config)
        directory.write("run.json", record)
    for stop in stops:
        run_population(inside, callbacks=[StopAtStep(stop)], own=False)
    return runs


def compare_runs(a: Path, b: Path) -> list[str]:
    """Returns one message per difference between two run directories.

    Compares the newest and the best checkpoints (tensors by name, and state.json), and metrics.jsonl without its time
    fields.
    """
    left, right = find_checkpoint(a), find_checkpoint(b)
    if left.step != right.step:
        return [f"the newest checkpoint has step {left.step} in {a}, but step {right.step} in {b}"]
    found = _differences(left, right)
    best = left.group("trainer").get("best")
    if not found and best is not None and best[0] != left.step:
        found = _differences(*(read_checkpoint(each.path.with_name(step_name(best[0]))) for each in (left, right)))
    return found + _metric_differences(_rows(a / METRICS), _rows(b / METRICS))


def _checkpoint_differences(a: Path, b: Path) -> list[str]:
    left, right = checkpoints_by_step(a), checkpoints_by_step(b)
    shared = sorted(left.keys() & right.keys())
    return [
        found for step in shared for found in _differences(read_checkpoint(left[step]), read_checkpoint(right[step]))
    ]


def _differences(a: Checkpoint, b: Checkpoint) -> list[str]:
    found = _tensor_differences(a, b)
    if (a.path / STATE).read_bytes() != (b.path / STATE).read_bytes():
        found.append(f"{STATE} differs at step {a.step}")
    return found


def _tensor_differences(a: Checkpoint, b: Checkpoint) -> list[str]:
    left, right = _tensors(a), _tensors(b)
    missing = [f"{name} is in only one checkpoint" for name in sorted(left.keys() ^ right.keys())]
    shared = sorted(left.keys() & right.keys())
    return missing + [f"{name} differs at step {a.step}" for name in shared if not _equal(left[name], right[name])]


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    files = [file for file in checkpoint.manifest.files if file.endswith(".safetensors")]
    return {f"{file}: {name}": tensor for file in files for name, tensor in checkpoint.tensors(file).items()}


def _equal(a: Tensor, b: Tensor) -> bool:
    """Compares bytes: NaN equals NaN, and 0.0 differs from -0.0."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not _is_left_out(name)} for row in rows]


def _is_left_out(name: str) -> bool:
    """Whether a field may differ between identical runs, or is a copy that earlier versions did not write."""
    return name in TIME_FIELDS or name.startswith(FLAT)


def _metric_differences(a: list[dict[str, Any]], b: list[dict[str, Any]], *, ignore_new: bool = False) -> list[str]:
    """Names the first row that differs. With `ignore_new`, `a` may lack fields that earlier versions did not log."""
    if len(a) != len(b):
        return [f"{METRICS} has {len(a)} rows in one run, {len(b)} in the other"]
    for number, (left, right) in enumerate(zip(a, b, strict=True), 1):
        compared = left if ignore_new else {**left, **right}
        fields = [name for name in compared if json.dumps(left.get(name)) != json.dumps(right.get(name))]
        if fields:
            return [f"{METRICS} differs first in row {number} (step {left.get('step')}): {', '.join(fields)}"]
    return []
