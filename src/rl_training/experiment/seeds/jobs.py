"""Trains the seeds of a config by an executor. A job is a `train` command for one seed, or for a population."""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.executors.base import LOG, Command, Executor, last_error
from rl_training.experiment.executors.job_log import JobLog
from rl_training.experiment.processes.runner import Job, run_jobs
from rl_training.experiment.run_directory import LOCK_SECONDS, RunDirectory, locked_file, make_directory
from rl_training.experiment.seeds.processes import SeedError
from rl_training.experiment.seeds.progress import SeedGroup, SeedProgress
from rl_training.experiment.user_errors import USER_ERROR_CODE
from rl_training.files import write_atomically
from rl_training.messages import many, print_warning, seeds_text
from rl_training.runtime.metrics_table import logged_rows

FOLDER, SEEDS = ".work", "seeds.json"  # in the run directory of the first seed of a job
READ_SECONDS = 1.0  # between two looks at the files of the runs


class StoredSeed:
    """A seed that trains in another process; its progress comes from the log of its run."""

    def __init__(self, config: TrainConfig) -> None:
        self.seed, self.run, self._steps = config.seed, run_directory(config), config.duration
        self.progress: SeedProgress | None = None
        self.messages: list[str] = []

    def read(self) -> None:
        rows = logged_rows(self.run, last_bytes=10_000)
        if rows:
            returns = [row["episode_return"] for row in rows if row.get("episode_return") is not None]
            scores = [row["evaluation"]["return_mean"] for row in rows if "evaluation" in row]
            step = min(max(row["step"] for row in rows), self._steps)
            self.progress = SeedProgress(step, returns[-1] if returns else None, scores[-1] if scores else None)


class SeedsJob(Job):
    """Some seeds that train in one process; `code` is its exit code."""

    def __init__(
        self, configs: Sequence[TrainConfig], executor: Executor, *, fresh: bool, keep_open: tuple[int, ...]
    ) -> None:
        self.seeds = [StoredSeed(config) for config in configs]
        self.folder = run_directory(configs[0]) / FOLDER
        self.code: int | None = None
        self.error: str | None = None
        self.stopped = False  # by someone else, such as a user of the cluster
        self._arguments = train_command(configs, fresh=fresh)
        self._executor, self._keep_open, self._submitted = executor, keep_open, False
        self._read_at, self._log = 0.0, JobLog(self.folder / LOG)

    @property
    def name(self) -> str:
        return seeds_text([seed.seed for seed in self.seeds])

    @property
    def waiting(self) -> bool:
        return not self._submitted

    @property
    def stops_others(self) -> bool:
        return self.code == USER_ERROR_CODE

    def start(self) -> None:
        self._submitted = True
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / SEEDS, json.dumps([seed.seed for seed in self.seeds]))
        self._log = JobLog(self.folder / LOG, skip=True)
        self.process = self._executor.submit(Command(self.name, self._arguments, self.folder, self._keep_open))

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        code = self.process.poll()
        if code is None and time.monotonic() - self._read_at < READ_SECONDS:
            return
        self._read_at = time.monotonic()
        for seed in self.seeds if self.process.started else ():
            seed.read()
        warnings = self._log.warnings()
        for seed in self.seeds:
            seed.messages += warnings
        if code is not None:
            ended, self.process = self.process, None
            self.code, self.stopped = code, ended.stopped
            self.error = ended.error or (last_error(self.folder / LOG, code) if code else None)

    def raise_failure(self) -> None:
        """Raises the error of the process, if any; warns if someone else has stopped it."""
        if self.stopped:
            print_warning(f"{self.name}: {self.error}")
        elif self.code == USER_ERROR_CODE:
            raise ValueError(self.error)
        elif self.code:
            raise SeedError(f"{self.name}: {self.error}")


def run_directory(config: TrainConfig) -> Path:
    assert config.output_dir is not None  # --seeds sets it
    return Path(config.output_dir)


def train_command(configs: Sequence[TrainConfig], *, fresh: bool) -> tuple[str, ...]:
    """The words after `python -m` that train these seeds. They hold the whole config, so that no other file is needed.

    The modules that the config names are those of the user's own command, so the job may import them.
    """
    values = configs[0].model_dump(mode="json", exclude_defaults=True, exclude={"algo", "seed", "output_dir"})
    changes = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    seeds, output = ",".join(str(config.seed) for config in configs), run_directory(configs[0]).parent
    words = [word for change in changes for word in ("--set", change)]
    options = ["--seeds", seeds, "--output", str(output), "--json", "--quiet", *(["--fresh"] if fresh else [])]
    return ("rl_training.cli", "train", configs[0].algo, *words, *options)


def divide(configs: Sequence[TrainConfig], groups: int, *, fresh: bool) -> list[list[TrainConfig]]:
    """Divides seeds into jobs of about the same size. Seeds that were together in a job before stay together.

    A job may be in the queue of a cluster, and seeds of different jobs may have no checkpoint of the same step.
    """
    left = {config.seed: config for config in configs}
    divided: list[list[TrainConfig]] = []
    for config in () if fresh else configs:
        members = [left.pop(seed) for seed in _stored_seeds(config) if seed in left]
        divided += [members] if members else []
    rest, number = list(left.values()), min(max(groups - len(divided), 1), len(left))
    ends = [round(len(rest) * place / number) for place in range(number + 1)] if rest else [0]
    return divided + [rest[start:end] for start, end in pairwise(ends)]


def _stored_seeds(config: TrainConfig) -> list[int]:
    file = run_directory(config) / FOLDER / SEEDS
    try:
        return [int(seed) for seed in json.loads(file.read_text())] if file.exists() else []
    except (ValueError, TypeError):
        return []


def train_in_jobs(
    groups: Sequence[Sequence[TrainConfig]], executor: Executor, *, fresh: bool, quiet: bool
) -> list[int]:
    """Trains the groups and returns the requests to stop (signals). A user error stops all groups and is raised."""
    configs = [config for group in groups for config in group]
    parent = run_directory(configs[0]).parent
    with _locked(parent, configs) as lock:
        if fresh and executor.remote:
            _discard(configs)  # a remote job may be started several times
        again = fresh and not executor.remote
        jobs = [SeedsJob(group, executor, fresh=again, keep_open=(lock,)) for group in groups]
        seeds = [seed for job in jobs for seed in job.seeds]
        shown = SeedGroup(seeds, sum(config.duration for config in configs), _steps_taken(seeds), quiet=quiet)
        if not quiet:
            limit = "" if executor.parallel >= len(jobs) else f", {executor.parallel} at a time"
            print_warning(f"{many(len(seeds), 'seed')} in {many(len(jobs), 'job')}{limit}")
        try:
            caught = run_jobs(jobs, limit=executor.limit, watch=shown.show)
        finally:
            shown.close()
        if not caught:
            for job in sorted(jobs, key=lambda job: not job.stops_others):
                job.raise_failure()
    return caught


def _steps_taken(seeds: Iterable[StoredSeed]) -> dict[int, int]:
    """The steps of seeds that trained before."""
    taken: dict[int, int] = {}
    for seed in seeds:
        seed.read()
        taken |= {} if seed.progress is None else {seed.seed: seed.progress.step}
        seed.progress = None
    return taken


def _discard(configs: Sequence[TrainConfig]) -> None:
    for config in configs:
        directory = RunDirectory(run_directory(config))
        with directory.locked():
            directory.check(config, fresh=True)
            directory.begin(config, fresh=True)


@contextmanager
def _locked(parent: Path, configs: Sequence[TrainConfig]) -> Iterator[int]:
    """Locks the parent directory of the runs. After an error, removes what was made for runs that never started."""
    make_directory(parent)
    busy = f"another command trains seeds in {parent}; wait for it or choose another --output"
    with locked_file(parent / ".lock", busy, seconds=LOCK_SECONDS) as lock:
        try:
            yield lock
        except Exception:
            for run in map(run_directory, configs):
                if run.is_dir() and {path.name for path in run.iterdir()} <= {FOLDER, ".lock"}:
                    shutil.rmtree(run, ignore_errors=True)
            with suppress(OSError):
                if [path.name for path in parent.iterdir()] == [".lock"]:
                    (parent / ".lock").unlink()
            raise
