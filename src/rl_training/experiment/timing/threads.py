"""Chooses the CPU threads of a run, 1, 2 or 4, by timing its updates."""

import copy
import math
import os
import time
from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import Any

import torch

from rl_training.algorithms import Learner, Updater
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.experiment.timing.trial import random_rows
from rl_training.processes import usable_cores
from rl_training.types import EnvSpec

THREADS = (1, 2, 4)
MEASURED_SIZE, MEASURED_UPDATES = 50_000, 10_000  # parameters and updates below which more threads are not tried
MEASURED_SECONDS, MIN_GAIN = 0.5, 1.2


def measure_threads(config: TrainConfig, learner: Learner, spec: EnvSpec) -> int:
    """Times updates of a copy of the learner with one and more threads; returns the number to train with.

    It is 1 without measuring if the network is small, the run is short, or OMP_NUM_THREADS limits the threads, as it
    does for runs that train side by side.
    """
    updates = lane_of(config).count_updates(learner.config, config.duration, config.num_envs)
    size = sum(parameter.numel() for parameter in learner.parameters())
    on_cpu = next(learner.parameters()).device.type == "cpu"
    is_simple = on_cpu and learner.is_traceable and learner.lane in ("offline", "replay")
    if not is_simple or size < MEASURED_SIZE or updates < MEASURED_UPDATES or "OMP_NUM_THREADS" in os.environ:
        return 1
    with torch.random.fork_rng(devices=[]):
        updater = Updater([copy.deepcopy(learner)])
        batch = random_rows(learner, spec, learner.config.batch_size)
        return fastest_threads(lambda: updater.update(batch), usable_cores())


def fastest_threads(update: Callable[[], Any], usable: int, clock: Callable[[], float] = time.perf_counter) -> int:
    """Returns 1, 2 or 4 threads: doubles them as long as that makes an update at least 1.2 times as fast."""
    counts = [count for count in THREADS if count <= usable]
    best, deadline = dict.fromkeys(counts, math.inf), clock() + MEASURED_SECONDS
    while len(counts) > 1 and clock() < deadline:  # in turn, so that a busy machine slows all of them
        for count in counts:
            torch.set_num_threads(count)
            update()  # starts the threads
            began = clock()
            update()
            best[count] = min(best[count], clock() - began)
    torch.set_num_threads(1)
    steps = takewhile(lambda pair: best[pair[0]] >= MIN_GAIN * best[pair[1]], pairwise(counts))
    return max((more for _, more in steps), default=1)
