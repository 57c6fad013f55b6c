"""Trains several seeds of one config: as one population where the lane supports it, otherwise in processes."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from rl_training.experiment.agent import read_record
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.executors.base import Executor
from rl_training.experiment.lanes import lane_of
from rl_training.experiment.processes.runner import run_jobs
from rl_training.experiment.result import UNFINISHED, TrainResult, finished_earlier, is_run
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.run_directory import ELSEWHERE, RunDirectory
from rl_training.experiment.seeds.jobs import divide, train_in_jobs
from rl_training.experiment.seeds.processes import SeedJob
from rl_training.experiment.seeds.progress import SeedGroup
from rl_training.experiment.starts import find_starts
from rl_training.experiment.trust import changed_sources, warn_of_changed_source
from rl_training.messages import print_warning, seeds_text
from rl_training.processes import end_if_repeated
from rl_training.runtime.engine import Callback


def train_seeds(
    configs: Sequence[TrainConfig], *, callbacks: Sequence[Callback] = (), fresh: bool = False, quiet: bool = True,
    executor: Executor | None = None,
) -> list[TrainResult]:  # fmt: skip
    """Trains every seed. Finished seeds are not trained again; their stored results are returned."""
    end_if_repeated()
    stored = {} if fresh else {config.seed: result for config in configs if (result := _stored_result(config))}
    results = {seed: result for seed, result in stored.items() if result.status not in UNFINISHED}
    waiting = [config for config in configs if config.seed not in results]
    _refuse_inside_run(configs)
    if not waiting:
        print_warning(finished_earlier(len(results)))
    _warn_of_changed_sources([config for config in configs if config.seed in results], [] if fresh else waiting)
    with _no_empty_directories(waiting):
        if waiting and executor is not None:
            results |= train_by_executor(configs, {*results}, executor, fresh=fresh, quiet=quiet)
        elif len(waiting) == 1 or (waiting and as_population(waiting[0])):
            results |= train_in_populations(waiting, callbacks, fresh=fresh, quiet=quiet)
        elif waiting:
            results |= train_in_processes(waiting, callbacks, fresh=fresh, quiet=quiet)
    return [results[config.seed] for config in configs]


def _warn_of_changed_sources(finished: Sequence[TrainConfig], waiting: Sequence[TrainConfig]) -> None:
    """Warns of environments that were edited since seeds finished, unless the training of the others will warn."""
    old, new = ([read_record(RunDirectory.of(config).path) for config in configs] for configs in (finished, waiting))
    warn_of_changed_source(*old, warn=print_warning, runs="the finished seeds", known=changed_sources(new))


def _refuse_inside_run(configs: Sequence[TrainConfig]) -> None:
    """Raises ConfigError where new seeds would lie in the directory of a single run, which hides them."""
    paths = [RunDirectory.of(config).path for config in configs]
    if is_run(paths[0].parent) and not any(path.exists() for path in paths):
        raise ConfigError(f"{paths[0].parent} holds a run of one seed; choose {ELSEWHERE} for several seeds")


@contextmanager
def _no_empty_directories(configs: Sequence[TrainConfig]) -> Iterator[None]:
    """After an error, removes the new directories of runs that were not started, and their new parent directory."""
    runs = [RunDirectory.of(config) for config in configs if not RunDirectory.of(config).path.exists()]
    parents = {run.path.parent for run in runs if not run.path.parent.exists()}
    try:
        yield
    except Exception:
        for run in (run for run in runs if run.path.exists()):  # of a process that was stopped as it began
            with suppress(OSError), run.locked():
                pass  # removes the lock file if nothing else was written
        for path in [*(run.path for run in runs), *parents]:
            with suppress(OSError):  # not empty, or never created
                path.rmdir()
        raise


def as_population(config: TrainConfig) -> bool:
    """Whether the seeds of this config train as one population. Early stopping ends seeds at different steps."""
    return lane_of(config).takes_population and config.early_stopping is None


def _stored_result(config: TrainConfig) -> TrainResult | None:
    directory = RunDirectory.of(config)
    stored = directory.read("result.json") if directory.path.is_dir() else None
    if stored is None:
        return None
    directory.check(config)
    return TrainResult.from_json(directory.path, stored)


def train_in_populations(
    configs: Sequence[TrainConfig], callbacks: Sequence[Callback], *, fresh: bool, quiet: bool
) -> dict[int, TrainResult]:
    """Trains the seeds as one population. If some were stopped, they continue first, and new seeds train after them."""
    began = set() if fresh else _seeds_with_checkpoints(configs)
    stopped = [config for config in configs if config.seed in began]
    new = [config for config in configs if config.seed not in began]
    if stopped and new:
        first, second = (seeds_text([config.seed for config in group]) for group in (stopped, new))
        print_warning(f"first continues {first}, then starts {second}")
    results: dict[int, TrainResult] = {}
    for group in filter(None, (stopped, new)):
        # A signal during the last evaluation or save leaves the first seeds finished.
        if any(result.status in UNFINISHED or result.signal is not None for result in results.values()):
            return results | {config.seed: _without_result(config) for config in group}
        if len(group) == 1:
            trained = [run_training(group[0], callbacks=callbacks, fresh=fresh, quiet=quiet)]
        else:
            trained = run_population(group, callbacks=callbacks, fresh=fresh, quiet=quiet)
        results |= {config.seed: result for config, result in zip(group, trained, strict=True)}
    return results


def _seeds_with_checkpoints(configs: Sequence[TrainConfig]) -> set[int]:
    """The seeds that have saved checkpoints, and those that began with them, in one population.

    A crash may leave one member with a record of its first checkpoint, and another without.
    """
    found: set[int] = set()
    for config in configs:
        directory = RunDirectory.of(config)
        if directory.had_checkpoints():
            record = directory.read("run.json") or {}
            found |= {config.seed, *record.get("population", ())}
    return found


def train_in_processes(
    configs: Sequence[TrainConfig], callbacks: Sequence[Callback], *, fresh: bool, quiet: bool
) -> dict[int, TrainResult]:
    """Trains at most one seed per core, the first with the callbacks. A signal or a user error stops all seeds."""
    earlier = {} if fresh else {config.seed: result for config in configs if (result := _stored_result(config))}
    for config in [] if fresh else configs:
        _check_checkpoints(config)
    if (source := configs[0].environment()) is not None:
        source.require_importable("seeds that train in processes of their own")
    seeds = [SeedJob(config, callbacks if config is configs[0] else (), fresh=fresh) for config in configs]
    steps, taken = sum(config.duration for config in configs), {seed: result.steps for seed, result in earlier.items()}
    group = SeedGroup(seeds, steps, taken, quiet=quiet)
    try:
        caught = run_jobs(seeds, limit=os.cpu_count() or 1, watch=group.show)
    finally:
        group.close()
    if not caught:
        for seed in sorted(seeds, key=lambda seed: not seed.stops_others):  # a user error has stopped the others
            seed.raise_failure()
    results: dict[int, TrainResult] = {}
    for config, seed in zip(configs, seeds, strict=True):
        stored = _stored_result(config) if seed.exit_code == 0 else earlier.get(config.seed)
        result = stored or _without_result(config)
        results[config.seed] = replace(result, trained=seed.trained, signal=caught[0] if caught else None)
    return results


def train_by_executor(
    configs: Sequence[TrainConfig], finished: Collection[int], executor: Executor, *, fresh: bool, quiet: bool
) -> dict[int, TrainResult]:
    """Divides the seeds into jobs: populations where the lane supports it, otherwise one seed each."""
    single = executor.one_folder or not as_population(configs[0])
    divided = [[config] for config in configs] if single else divide(configs, executor.parallel, fresh=fresh)
    groups = [group for group in divided if any(config.seed not in finished for config in group)]
    waiting = [config for group in groups for config in group if config.seed not in finished]
    earlier = {} if fresh else {config.seed: _stored_result(config) for config in waiting}
    for config in [] if fresh else waiting:
        _check_checkpoints(config)
    caught = train_in_jobs(groups, executor, fresh=fresh, quiet=quiet)
    results: dict[int, TrainResult] = {}
    for config in waiting:
        result, before = _stored_result(config) or _without_result(config), earlier.get(config.seed)
        trained = result.steps != (0 if before is None else before.steps)
        results[config.seed] = replace(result, trained=trained, signal=caught[0] if caught else None)
    return results


def _check_checkpoints(config: TrainConfig) -> None:
    """Raises an error if the seed has saved checkpoints and none can be used, before any seed starts."""
    directory = RunDirectory.of(config)
    if directory.path.is_dir():
        with directory.locked():
            find_starts([directory])


def _without_result(config: TrainConfig) -> TrainResult:
    reason = "stopped before it had a result"
    return TrainResult(RunDirectory.of(config).path, None, {}, status="stopped", stop_reason=reason, trained=False)
