"""The updater of a run, with the threads and the compilation that a new run has measured."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rl_training.algorithms import Learner, Updater
from rl_training.data import TransitionDataset
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.experiment.machine import Choices, apply, count_updates, has_compiler
from rl_training.experiment.timing.compilation import MIN_UPDATES, Compilation, choose_compilation
from rl_training.experiment.timing.threads import measure_threads
from rl_training.messages import Warn
from rl_training.types import EnvSpec
from rl_training.waiting import Show


class Updates(NamedTuple):
    """The learners of a run and their updater; `compilation` describes what `compile: auto` has measured."""

    learners: Sequence[Learner]
    updater: Updater
    choices: Choices
    compilation: str = ""


class Measurement(NamedTuple):
    """Parts that a new run measures its choices with: the dataset of an offline run, and functions for messages."""

    dataset: TransitionDataset | None
    show: Show | None
    warn: Warn


def new_updates(
    configs: Sequence[TrainConfig], learners: Sequence[Learner], spec: EnvSpec, choices: Choices,
    measurement: Measurement | None,
) -> Updates:  # fmt: skip
    """Returns the updater of a run; a new run measures its threads and whether to compile, unless they are set."""
    config, compilation = configs[0], None
    if choices.compile and choices.device == "cpu" and not has_compiler():
        raise ConfigError("compile is on, but no C++ compiler was found. Install g++ or clang++, or set compile to off")
    if measurement is not None and config.threads is None and len(configs) == 1:
        choices = choices._replace(threads=measure_threads(config, learners[0], spec))
        apply(choices)
    if measurement is not None and config.compile == "auto" and lane_of(config).times_updates and has_compiler():
        compilation = _measured_compilation(config, learners, spec, measurement)
        choices = choices._replace(compile=compilation.compile)
    reason = "" if compilation is None else compilation.reason
    if compilation is not None and compilation.trained is not None:
        return Updates(*compilation.trained, choices, reason)
    updater = Updater(learners, compile=choices.compile, capture=choices.device.startswith("cuda"))
    return Updates(learners, updater, choices, reason)


def _measured_compilation(
    config: TrainConfig, learners: Sequence[Learner], spec: EnvSpec, measurement: Measurement
) -> Compilation:
    dataset, updates = measurement.dataset, count_updates(config)
    if dataset is not None and config.max_epochs is not None:
        updates = min(updates, count_epoch_updates(config.max_epochs, len(dataset), learners[0].config.batch_size))
    chosen = choose_compilation(learners, spec, dataset, updates, show=measurement.show, warn=measurement.warn)
    if measurement.show is not None and updates >= MIN_UPDATES:
        measurement.show(f"compile: {chosen.reason}")
    return chosen


def count_epoch_updates(epochs: float, rows: int, batch_size: int) -> int:
    """Returns the number of updates in this number of passes over a dataset."""
    return math.ceil(epochs * rows / batch_size)
