"""The updater of a run, and the choices that a new run measures for it: CPU threads and compilation."""

import math
from collections.abc import Sequence

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

NOT_TIMED = Compilation(False, "")


def measure_choices(
    configs: Sequence[TrainConfig], learners: Sequence[Learner], spec: EnvSpec, choices: Choices,
    dataset: TransitionDataset | None, *, show: Show | None, warn: Warn,
) -> tuple[Choices, Compilation]:  # fmt: skip
    """Measures threads and compilation, unless the config sets them. `dataset` is that of an offline run."""
    config = configs[0]
    if config.threads is None and len(configs) == 1:
        choices = choices._replace(threads=measure_threads(config, learners[0], spec))
        apply(choices)
    if config.compile != "auto" or not lane_of(config).times_updates or not has_compiler():
        return choices, NOT_TIMED
    updates = count_updates(config)
    if dataset is not None and config.max_epochs is not None:
        updates = min(updates, count_epoch_updates(config.max_epochs, len(dataset), learners[0].config.batch_size))
    compilation = choose_compilation(learners, spec, dataset, updates, show=show, warn=warn)
    if show is not None and updates >= MIN_UPDATES:
        show(f"compile: {compilation.reason}")
    return choices._replace(compile=compilation.compile), compilation


def new_updater(learners: Sequence[Learner], choices: Choices) -> Updater:
    if choices.compile and choices.device == "cpu" and not has_compiler():
        raise ConfigError("compile is on, but no C++ compiler was found. Install g++ or clang++, or set compile to off")
    return Updater(learners, compile=choices.compile, capture=choices.device.startswith("cuda"))


def count_epoch_updates(epochs: float, rows: int, batch_size: int) -> int:
    """Returns the number of updates in this number of passes over a dataset."""
    return math.ceil(epochs * rows / batch_size)
