"""A run's directory: what lies where, who may write, and what it says of itself."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.experiment.config.train_config import (
    ConfigError,
    TrainConfig,
    config_differences,
    config_yaml,
    parse_config,
)

ELSEWHERE = "another --output (output_dir in Python)"
OURS = ("config.yaml", "run.json", "result.json", "metrics.jsonl", "curve.png", CHECKPOINTS, "tensorboard")


class RunLockedError(BlockingIOError):
    """Another process trains in this directory."""


class RunDirectory:
    """config.yaml, run.json (facts), metrics.jsonl, checkpoints/, tensorboard/, result.json and curve.png."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.metrics = self.path / "metrics.jsonl"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; the system frees the lock when its process ends, however it ends.

        A directory in which nothing was begun is left as it was found, or not left behind.
        """
        found = self.path.exists()
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
                    if not found:
                        with suppress(OSError):  # another process has just begun in it
                            self.path.rmdir()

    def config(self) -> TrainConfig | None:
        file = self.path / "config.yaml"
        return parse_config(yaml.safe_load(file.read_text())) if file.exists() else None

    def check(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Refuse a directory of strangers' files, and one that holds another run, unless that is to go."""
        if not (self.path / "config.yaml").exists():
            strangers = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
            if strangers:
                raise ConfigError(
                    f"{self.path} holds no run but has files in it ({strangers[0]}, …); choose {ELSEWHERE}"
                )
        elif not fresh:
            self._refuse_other_config(config)

    def begin(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Make this the directory of `config`'s run, where it is not that already."""
        if fresh:
            self.clear()
        if not (self.path / "config.yaml").exists():
            write_atomically(self.path / "config.yaml", config_yaml(config))

    def _refuse_other_config(self, config: TrainConfig) -> None:
        stored = self.config()
        changed = {} if stored is None else config_differences(stored, config)
        if changed:
            before, after = changed.get("total_timesteps", (0, 0))
            further = list(changed) == ["total_timesteps"] and after > before
            resume = f"`rl-training resume {self.path} --steps {after}`"
            longer = f", go on further with {resume} (resume_training in Python)" if further else ""
            named = "; ".join(f"{key}: {was!r} there, {now!r} here" for key, (was, now) in changed.items())
            raise ConfigError(
                f"{self.path} holds a run with another config ({named}). "
                f"Continue it with the config it has{longer}, choose {ELSEWHERE}, or start over with --fresh "
                "(fresh=True in Python)."
            )

    def clear(self) -> None:
        """Remove what a run writes, and nothing else."""
        for name in OURS:
            target = self.path / name
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """run.json or result.json; None where it is not there yet."""
        file = self.path / name
        return dict(json.loads(file.read_text())) if file.exists() else None

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2) + "\n")


def make_directory(path: Path) -> None:
    """Where a run or a bench is to lie; what stands in its way is named."""
    file = next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), None)
    if file is not None:
        raise NotADirectoryError(f"{file} is a file and no directory; choose {ELSEWHERE}")
    path.mkdir(parents=True, exist_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """A reader finds the old text or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
