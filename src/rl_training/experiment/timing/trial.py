"""Times updates of copies of a run's learners; the learners and their random numbers do not change."""

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rl_training.algorithms import Learner, Updater
from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.replay.mixed_replay import MixedReplay
from rl_training.types import Batch, EnvSpec

TIMED_SECONDS, WARM_UP_SECONDS = 0.3, 0.3
WARM_UPS, GRAPH_UPDATES = 3, 32  # timed units before the first one that counts, and updates of a unit on a GPU
STORED = 1024  # random transitions, at least
BUFFER_OPTIONS = ("n_step", "gamma", "prioritized", "priority_alpha")  # only some algorithms have them


def random_rows(learner: Learner, spec: EnvSpec, rows: int) -> Batch:
    layout = ReplayBuffer.layout(spec)
    batch = {name: torch.rand(rows, *shape).to(dtype) for name, (shape, dtype) in layout.items()}
    extra = {each.name: each.layout(batch) for each in learner.needs}
    return batch | {name: torch.rand(rows, *shape).to(dtype) for name, (shape, dtype) in extra.items()}


def trial_source(learners: Sequence[Learner], spec: EnvSpec, dataset: TransitionDataset | None) -> Any:
    """Returns a source whose batches have the layout of the run's: its dataset, or a buffer of random transitions."""
    if dataset is None:
        source: Any = _random_buffer(learners, spec)
    else:
        source = copy.copy(dataset)  # shares the columns
        source.generator = torch.Generator(dataset.generator.device)
    source.seed(0)
    real_ratio = getattr(learners[0].config, "real_ratio", None)
    return source if real_ratio is None else MixedReplay(source, _random_buffer(learners, spec), real_ratio)


def _random_buffer(learners: Sequence[Learner], spec: EnvSpec) -> ReplayBuffer:
    first, config = learners[0], learners[0].config
    device = next(first.parameters()).device
    rows = random_rows(first, spec, max(STORED, config.batch_size))
    extra = {each.name: each.layout(rows) for each in first.needs}
    members = len(learners) if len(learners) > 1 else None
    options = {name: getattr(config, name) for name in BUFFER_OPTIONS if hasattr(config, name)}
    buffer = ReplayBuffer(len(rows["rewards"]), spec, device=device, extra=extra, members=members, **options)
    buffer.add({name: column if members is None else column.expand(members, *column.shape).contiguous()
                for name, column in rows.items()})  # fmt: skip
    return buffer


class TimedUpdates:
    """An updater of copied learners. Units of updates are timed: single ones on a CPU, whole graphs on a GPU."""

    def __init__(
        self, learners: Sequence[Learner], source: Any, *, compile: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self.learners, self.source, self.clock = copy.deepcopy(list(learners)), source, clock
        self.device = next(learners[0].parameters()).device
        self.updater = Updater(self.learners, compile=compile, capture=self.device.type == "cuda")
        self.unit = GRAPH_UPDATES if self.device.type == "cuda" else 1
        self.best, self.counts = dict[Any, float](), Counter[Any]()  # of units, by their phases
        state = self.updater.state_dict()
        self._initial = tree_map(lambda each: each.clone() if isinstance(each, Tensor) else each, state)
        if self.updater.flat is not None:
            self.updater.flat.after = 0.0  # the run trains with flat programs from its first second on

    def warm_up(self) -> float:
        """Runs the first updates, which trace, compile and capture; returns their seconds."""
        began, units = self.clock(), 0
        while units < WARM_UPS or (units < GRAPH_UPDATES // self.unit and self.clock() < began + WARM_UP_SECONDS):
            self._run_unit()
            units += 1
        return self.clock() - began

    def time_unit(self) -> None:
        first = self.updater.updates
        phases = tuple(self.updater.learner.phases(first + ahead) for ahead in range(self.unit))
        began = self.clock()
        self._run_unit()
        self.best[phases] = min(self.best.get(phases, math.inf), self.clock() - began)
        self.counts[phases] += 1

    def seconds_per_update(self) -> float:
        """Returns the mean over phases (TD3 trains its actor in every second update) of their fastest updates."""
        # Rare phases may have been traced or compiled while they were timed.
        usual = {phases: count for phases, count in self.counts.items() if count >= WARM_UPS} or self.counts
        return sum(self.best[each] * usual[each] for each in usual) / sum(usual.values()) / self.unit

    def rewound(self) -> tuple[list[Learner], Updater]:
        """Returns the learners and their updater in their first state."""
        self.updater.rewind(self._initial)
        return self.learners, self.updater

    def _run_unit(self) -> None:
        self.updater.run(self.source, self.unit)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def time_in_turns(trials: Sequence[TimedUpdates], needed: float = 0.0) -> list[float]:
    """Returns the seconds of an update of each trial; in turn, so that other work on the machine slows all of them.

    Stops early if the updates of the first one take less than `needed`.
    """
    for each in trials:
        each.best, each.counts = {}, Counter()
    first, rounds = trials[0], 0
    deadline = first.clock() + TIMED_SECONDS * len(trials)
    while rounds < WARM_UPS or (first.clock() < deadline and first.seconds_per_update() >= needed):
        for each in trials:
            each.time_unit()
        rounds += 1
    return [each.seconds_per_update() for each in trials]
