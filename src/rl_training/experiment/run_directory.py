"""The directory of a run: its files, its lock and its config."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import (
    TrainConfig,
    config_differences,
    config_yaml,
    load_config,
    parse_config,
)
from rl_training.runtime.files import write_atomically

FIRST_CHECKPOINT = "first_checkpoint"  # key of run.json: the step of the first checkpoint, or null before it
FRESH = "--fresh (fresh=True in Python)"
ELSEWHERE = "another --output (output_dir in Python)"
RUN_FILES = ("config.yaml", "run.json", "result.json", "metrics.jsonl", "curve.png", CHECKPOINTS, "tensorboard")


class RunLockedError(BlockingIOError):
    """Another process is training in this directory."""


class RunDirectory:
    """Holds config.yaml, run.json, metrics.jsonl, checkpoints/, tensorboard/, result.json and curve.png."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.metrics = self.path / "metrics.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allows one writer at a time; the operating system releases the lock when the process ends.

        If nothing was written, removes the lock file, and the directory if it is new.
        """
        existed = self.path.exists()
        make_directory(self.path)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunLockedError(
                    f"another process is training in {self.path}; wait for it or choose {ELSEWHERE}"
                ) from error
            try:
                yield
            finally:
                if os.listdir(self.path) == [".lock"]:
                    (self.path / ".lock").unlink()
                    if not existed:
                        with suppress(OSError):  # another process has started in it
                            self.path.rmdir()

    def config(self) -> TrainConfig | None:
        file = self.path / "config.yaml"
        if not file.exists():
            return None
        values = load_config(str(file))
        try:
            return parse_config(values)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None

    def check(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Raises ConfigError if the directory holds foreign files, or a different run unless `fresh`."""
        if not (self.path / "config.yaml").exists():
            foreign = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
            if foreign:
                raise ConfigError(f"{self.path} is not a run but contains files ({foreign[0]}, …); choose {ELSEWHERE}")
        elif not fresh:
            self._refuse_other_config(config)

    def begin(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Writes config.yaml if it does not exist; `fresh` removes the previous run first."""
        if fresh:
            self.clear()
        if not (self.path / "config.yaml").exists():
            write_atomically(self.path / "config.yaml", config_yaml(config))

    def _refuse_other_config(self, config: TrainConfig) -> None:
        stored = self.config()
        changed = {} if stored is None else config_differences(stored, config)
        if changed:
            before, after = changed.get("total_timesteps", (0, 0))
            is_longer = list(changed) == ["total_timesteps"] and after > before
            resume = f"`rl-training resume {self.path} --steps {after}`"
            hint = f", extend it with {resume} (resume_training in Python)" if is_longer else ""
            named = "; ".join(f"{key}: {old!r} there, {new!r} here" for key, (old, new) in changed.items())
            raise ConfigError(
                f"{self.path} holds a run with a different config ({named}). "
                f"Continue it with its own config{hint}, choose {ELSEWHERE}, or start over with {FRESH}."
            )

    def clear(self) -> None:
        """Removes the files of a run and no others."""
        for name in RUN_FILES:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def had_checkpoints(self) -> bool:
        """Whether a checkpoint was once saved. Runs of earlier versions have no record, so any step_* counts."""
        record = self.read("run.json") or {}
        if FIRST_CHECKPOINT in record:
            return record[FIRST_CHECKPOINT] is not None
        return any(self.checkpoints.glob("step_*"))

    def read(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        try:
            return dict(json.loads(file.read_bytes())) if file.exists() else None
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{file} is damaged ({error}); restore it from a copy, or start over with {FRESH}"
            ) from None

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2) + "\n")


def make_directory(path: Path) -> None:
    file = next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), None)
    if file is not None:
        raise NotADirectoryError(f"{file} is a file, not a directory; choose {ELSEWHERE}")
    path.mkdir(parents=True, exist_ok=True)
