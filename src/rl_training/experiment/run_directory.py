"""The directory of a run: its files, its lock and its config."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from rl_training.experiment.agent import CHECKPOINTS
from rl_training.experiment.config.differences import config_differences, named_differences
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import (
    TrainConfig,
    config_yaml,
    load_config,
    parse_stored_config,
)
from rl_training.experiment.trust import Trust, modules_of, require_trusted
from rl_training.files import TEMPORARY, write_atomically
from rl_training.messages import command
from rl_training.runtime.metrics_table import METRICS

LOCK_POLL_SECONDS = 0.1
LOCK_SECONDS = 2  # processes that were killed keep a lock for a moment
CHECKSUM = "sha256"  # key of run.json and result.json
WITH_CHECKSUM = {"first_checkpoint", "env_restarts"}  # earlier versions wrote neither these keys nor a checksum
FIRST_CHECKPOINT = "first_checkpoint"  # key of run.json: the step of the first checkpoint, or null before it
STARTED_FROM = "started_from"  # key of run.json: the checkpoint of another run
FRESH = "--fresh (fresh=True in Python)"
ELSEWHERE = "another --output (output_dir in Python)"
CONFIG, DISCARDED = "config.yaml", ".discarded"
TRACKERS = "trackers.json"  # ids of the run in each tracker
# In the order in which --fresh removes them. Without result.json, the run is not taken for a finished one; run.json,
# which records that there were checkpoints, goes last.
RUN_FILES = (
    "result.json", CHECKPOINTS, METRICS, f"{METRICS}.before-step-*", "tensorboard", "wandb", TRACKERS, "videos",
    "curve.png", "run.json",
)  # fmt: skip


class RunLockedError(BlockingIOError):
    """Another process is training in this directory."""


@contextmanager
def locked_file(file: Path, busy: str, *, seconds: float = 0.0) -> Iterator[int]:
    """Locks a file and yields its descriptor; waits for `seconds`, then raises RunLockedError with the text `busy`.

    The operating system releases the lock when all processes that have the descriptor open have ended.
    """
    import fcntl  # not on Windows

    deadline = time.monotonic() + seconds
    with file.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise RunLockedError(busy) from error
            time.sleep(LOCK_POLL_SECONDS)
        yield lock.fileno()


class RunDirectory:
    """Holds config.yaml, run.json, metrics.jsonl, checkpoints/, tensorboard/, videos/, result.json and curve.png.

    After a fallback to an older checkpoint it also holds `metrics.jsonl.before-step-N`; see `starts.set_aside`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.metrics = self.path / METRICS

    @classmethod
    def of(cls, config: TrainConfig) -> RunDirectory:
        """The directory that this config trains in: its `output_dir`, or the default one."""
        return cls(config.output_dir or default_directory(config))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allows one writer at a time; the operating system releases the lock when the process ends.

        If nothing was written, removes the lock file, and the directory if it is new.
        """
        existed = self.path.exists()
        make_directory(self.path)
        busy = f"another process is training in {self.path}; wait for it or choose {ELSEWHERE}"
        with locked_file(self.path / ".lock", busy):
            try:
                yield
            finally:
                if os.listdir(self.path) == [".lock"]:
                    (self.path / ".lock").unlink()
                    if not existed:
                        with suppress(OSError):  # another process has started in it
                            self.path.rmdir()

    def config(self, trust: Trust | None = None) -> TrainConfig | None:
        """Returns the config, or None without one. With `trust`, first checks every module that it names."""
        file = self.path / CONFIG
        if not file.exists():
            return None
        values = load_config(str(file))
        if trust is not None:
            require_trusted(modules_of(values), trust, self.path)
        try:
            return parse_stored_config(values)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None

    def check(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Raises ConfigError if the directory holds foreign files, or a different run unless `fresh`.

        With `fresh`, links are refused: what they point to is not deleted.
        """
        if not (self.path / CONFIG).exists():
            foreign = sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
            if foreign:
                seeds = [name.removeprefix("seed_") for name in foreign if (self.path / name / CONFIG).exists()]
                more = f"; --seeds {','.join(seeds)} continues its runs" if seeds and "".join(seeds).isdecimal() else ""
                raise ConfigError(
                    f"{self.path} is not a run but contains files ({foreign[0]}, …); choose {ELSEWHERE}{more}"
                )
        elif not fresh:
            self._refuse_other_config(config)
        elif linked := [
            p for p in (self.path / CONFIG, self.path / DISCARDED, *self._files()) if p.is_symlink() or p.is_mount()
        ]:
            raise ConfigError(
                f"{linked[0]} is a link or a mount point, and {FRESH} deletes nothing outside the run directory; "
                f"remove {linked[0].name} yourself, or choose {ELSEWHERE}"
            )

    def begin(self, config: TrainConfig, *, fresh: bool = False) -> None:
        """Writes config.yaml if it does not exist; `fresh` removes the previous run first.

        `fresh` can be repeated after a crash at any point: config.yaml stays until it is replaced, each part of the
        run is moved away in one step, and what was moved is deleted last, here or at the next start.
        """
        if fresh:
            self._discard()
        if fresh or not (self.path / CONFIG).exists():
            write_atomically(self.path / CONFIG, config_yaml(config))
        shutil.rmtree(self.path / DISCARDED, ignore_errors=True)
        for unfinished in self.path.glob(f"{TEMPORARY}*"):  # left by a crash, because the run is locked
            if unfinished.is_file():
                unfinished.unlink()

    def _refuse_other_config(self, config: TrainConfig) -> None:
        stored = self.config()
        changed = {} if stored is None else config_differences(stored, config)
        if changed:
            before, after = changed.get("total_timesteps", (0, 0))
            is_longer = list(changed) == ["total_timesteps"] and after > before
            resume = f"`{command('resume', self.path, '--steps', after)}`"
            hint = f", extend it with {resume} (resume_training in Python)" if is_longer else ""
            raise ConfigError(
                f"{self.path} holds a run with a different config ({named_differences(changed)}). "
                f"Continue it with its own config{hint}, choose {ELSEWHERE}, or start over with {FRESH}."
            )

    def _files(self) -> list[Path]:
        """Lists the files and folders of the run that exist, without config.yaml."""
        present = sorted(os.listdir(self.path))  # unlike glob, with broken links
        return [self.path / name for pattern in RUN_FILES for name in fnmatch.filter(present, pattern)]

    def _discard(self) -> None:
        """Moves the files of the run and no others to a hidden folder."""
        discarded = self.path / DISCARDED
        if discarded.exists():  # left by a crash
            shutil.rmtree(discarded)
        discarded.mkdir()
        for file in self._files():
            os.replace(file, discarded / file.name)

    def had_checkpoints(self) -> bool:
        """Whether a checkpoint was once saved. Runs of earlier versions have no record, so any step_* counts."""
        record = self.read("run.json") or {}
        if FIRST_CHECKPOINT in record:
            return record[FIRST_CHECKPOINT] is not None
        return any(self.checkpoints.glob("step_*"))

    def keep_log(self, step: int) -> Path | None:
        """Copies the log before it is cut at `step`, to a new file beside it; returns None if there is no log."""
        if not self.metrics.exists():
            return None
        log = self.metrics.read_bytes()
        target = new_name(self.path / f"{METRICS}.before-step-{step}", unless=lambda path: path.read_bytes() == log)
        write_atomically(target, log)
        return target

    def read(self, name: str) -> dict[str, Any] | None:
        """Reads a JSON file and verifies its checksum, if it has one."""
        file = self.path / name
        try:
            content = dict(json.loads(file.read_bytes())) if file.exists() else None
            expected = () if content is None else content.keys() & {CHECKSUM, *WITH_CHECKSUM}
            if content is not None and expected and content.pop(CHECKSUM, None) != _checksum(content):
                raise ValueError("its checksum does not match")
            return content
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{file} is damaged ({error}); restore it from a copy, or start over with {FRESH}"
            ) from None

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps({**content, CHECKSUM: _checksum(content)}, indent=2) + "\n")


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def new_name(path: Path, unless: Callable[[Path], bool] = lambda path: False) -> Path:
    """Returns the path itself or `path-2`, `path-3`, …: the first that does not exist, or for which `unless` holds."""
    names = (path.with_name(f"{path.name}-{number}") if number > 1 else path for number in count(1))
    return next(name for name in names if not name.exists() or unless(name))


def default_directory(config: TrainConfig, seeds: str = "") -> Path:
    """Returns `runs/<algo>-<env>-s<seed>`; characters that file systems or shells treat specially become `-`.

    A run that an earlier version has started keeps its name: there, only `/` was replaced.
    """
    subject = config.env_id or (Path(config.dataset).stem if isinstance(config.dataset, str) else "data")
    ending = f"s{seeds or config.seed}"
    earlier = Path("runs") / f"{config.algo}-{subject.replace('/', '-')}-{ending}"
    words = (re.sub(r"[^\w.+-]+", "-", word).strip("-") for word in (config.algo, subject))
    path = Path("runs") / "-".join([*words, ending])
    return earlier if not path.exists() and _exists(earlier) else path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a file name on this system
        return False


def make_directory(path: Path) -> None:
    file = next((part for part in (path, *path.parents) if part.exists() and not part.is_dir()), None)
    if file is not None:
        raise NotADirectoryError(f"{file} is a file, not a directory; choose {ELSEWHERE}")
    path.mkdir(parents=True, exist_ok=True)
