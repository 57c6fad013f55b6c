"""Several seeds of one config: as one population where the lane knows members, else as processes side by side."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import resource_tracker

from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.result import TrainResult
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.seeds.processes import SeedProcess, Together
from rl_training.experiment.signals import caught_signals
from rl_training.experiment.training_run import default_directory
from rl_training.runtime.engine import Callback

TICK = 0.1  # seconds between looks at the processes


def train_seeds(
    configs: Sequence[TrainConfig], *, callbacks: Sequence[Callback] = (), fresh: bool = False, quiet: bool = True
) -> list[TrainResult]:
    """Train every seed; those that have finished are only told again, and take no part in a population."""
    results = {} if fresh else {config.seed: result for config in configs if (result := _finished(config))}
    waiting = [config for config in configs if config.seed not in results]
    with _nothing_left_empty(waiting):
        if len(waiting) == 1:
            results[waiting[0].seed] = run_training(waiting[0], callbacks=callbacks, fresh=fresh, quiet=quiet)
        elif waiting and as_population(waiting[0]):
            trained = run_population(waiting, callbacks=callbacks, fresh=fresh, quiet=quiet)
            results |= {config.seed: result for config, result in zip(waiting, trained, strict=True)}
        elif waiting:
            results |= _train_in_processes(waiting, callbacks, fresh=fresh, quiet=quiet)
    return [results[config.seed] for config in configs]


@contextmanager
def _nothing_left_empty(configs: Sequence[TrainConfig]) -> Iterator[None]:
    """Runs in which nothing was begun are gone; so is then the directory that was made for them to share."""
    shared = {_directory(config).path.parent for config in configs}
    new = [directory for directory in shared if not directory.exists()]
    try:
        yield
    except Exception:
        for directory in new:
            with suppress(OSError):  # it holds something, or never was
                directory.rmdir()
        raise


def as_population(config: TrainConfig) -> bool:
    """Early stopping ends one seed and not another, and so do the episodes of online steps: they ask for processes."""
    algorithm = get_algorithm_spec(config.algo)
    alone = config.early_stopping is not None or config.online_steps > 0 or algorithm.learner.uses_model
    return algorithm.lane in ("offline", "replay") and not alone


def _told(config: TrainConfig) -> TrainResult | None:
    """The result that the seed's run has written, whichever process did."""
    directory = _directory(config)
    ended = directory.read("result.json") if directory.path.is_dir() else None
    if ended is None:
        return None
    directory.check(config)
    return TrainResult.from_json(directory.path, ended)


def _directory(config: TrainConfig) -> RunDirectory:
    return RunDirectory(config.output_dir or default_directory(config))


def _finished(config: TrainConfig) -> TrainResult | None:
    result = _told(config)
    return result if result is not None and result.status != "stopped" else None


def _train_in_processes(
    configs: Sequence[TrainConfig], callbacks: Sequence[Callback], *, fresh: bool, quiet: bool
) -> dict[int, TrainResult]:
    """At most one a core; asked to stop, or where one meets a mistake of the user's, all of them save and end."""
    before = {} if fresh else {config.seed: told for config in configs if (told := _told(config))}
    together = Together(configs, {seed: told.steps for seed, told in before.items()}, quiet=quiet)
    with caught_signals() as caught:
        held_back = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        resource_tracker.ensure_running()  # which lets SIGINT through as it starts: once, and here
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        try:
            _work(configs, callbacks, together, caught, fresh=fresh)
        finally:
            together.end()
    if not caught:
        together.refuse_failures()
    ended = {seed.seed for seed in together.seeds if seed.process.exitcode == 0}
    results = {config.seed: _told(config) if config.seed in ended else before.get(config.seed) for config in configs}
    known = {config.seed: results[config.seed] or _without_result(config) for config in configs}
    return {seed: replace(result, signal=caught[0]) for seed, result in known.items()} if caught else known


def _work(
    configs: Sequence[TrainConfig], callbacks: Sequence[Callback], together: Together, caught: list[int], *, fresh: bool
) -> None:
    """Until all have ended; the first one tells the callbacks."""
    waiting, asked = list(configs), 0
    while True:
        running = together.look()
        requests = len(caught) + together.mistaken
        if waiting and not requests and len(running) < (os.cpu_count() or 1):
            config = waiting.pop(0)
            together.seeds.append(SeedProcess(config, callbacks if config is configs[0] else (), fresh=fresh))
            continue
        if not running:
            return
        for _ in range(asked, requests):
            for seed in running:
                seed.stop(caught[0] if caught else signal.SIGTERM)
        asked = requests
        time.sleep(TICK)


def _without_result(config: TrainConfig) -> TrainResult:
    reason = "asked to stop before it had a result"
    return TrainResult(_directory(config).path, None, {}, status="stopped", stop_reason=reason)
