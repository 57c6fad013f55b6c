"""`compile: auto`: a long run times its updates, compiles them if this can pay off, and keeps the faster version."""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training.algorithms import Learner, Updater
from rl_training.data import TransitionDataset
from rl_training.experiment.machine import versions
from rl_training.experiment.processes.startup import CACHE_VARIABLE, compilation_wait
from rl_training.experiment.timing.trial import TimedUpdates, time_in_turns, trial_source
from rl_training.files import write_atomically
from rl_training.messages import Warn, many
from rl_training.types import EnvSpec
from rl_training.waiting import Show, waiting_for

MIN_UPDATES = 10_000  # shorter runs are not timed
MIN_GAIN = 1.05  # compiled updates must be this many times as fast
MIN_RETURN = 2.0  # seconds to save for each second of compiling, if an earlier run has measured the gain
FROM_CACHE = 1 / 3  # compiling again takes about a third of the first time (10 s instead of 26 to 45 s on an H200)
# Seconds that all updates of a run must take, by device type; on others nothing is compiled. Compiling takes about 40 s
# for a CPU and 35 s for a GPU, so a trial without a gain costs at most a tenth or a quarter of the run. Compiled
# updates take 0.4 to 0.6 of the time on an H200, and 0.55 to 0.95 on a Xeon, usually 0.9.
MIN_SECONDS = {"cpu": 400.0, "cuda": 140.0}


class Compilation(NamedTuple):
    """Whether to compile, and why; `trained` holds learners and updater that are compiled already."""

    compile: bool
    reason: str
    trained: tuple[list[Learner], Updater] | None = None


class Timing(NamedTuple):
    """How many times as fast compiled updates are, and the seconds of compiling them the next time."""

    gain: float
    cost: float


class StoredTiming:
    """The timing of an earlier run with the same updates on this machine, stored beside the compiled code."""

    def __init__(self, learners: Sequence[Learner], spec: EnvSpec) -> None:
        first, folder = learners[0], os.environ.get(CACHE_VARIABLE)
        device = next(first.parameters()).device
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
        code = {name: version for name, version in versions().items() if name in ("rl-training", "torch")}
        facts = [first.name, first.config, len(learners), spec.to_json(), machine, torch.get_num_threads(), code]
        facts.append(
            MIN_SECONDS[device.type]
        )  # a version that compiles in another way has another limit and measures again
        name = f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.json"
        self.path = None if folder is None else Path(folder) / "timings" / name

    def read(self) -> Timing | None:
        try:
            return None if self.path is None else Timing(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):  # none yet, or damaged
            return None

    def write(self, timing: Timing) -> None:
        with suppress(OSError):  # on a full disk: the next run measures again
            if self.path is not None:
                write_atomically(self.path, json.dumps(timing._asdict()))


def choose_compilation(
    learners: Sequence[Learner], spec: EnvSpec, dataset: TransitionDataset | None, updates: int, *,
    show: Show | None = None, warn: Warn,
) -> Compilation:  # fmt: skip
    """Times updates without and with compilation, on the dataset or on random transitions.

    The learners, the dataset and the default random generators do not change. After an error nothing is compiled.
    """
    device = next(learners[0].parameters()).device
    if device.type not in MIN_SECONDS or updates < MIN_UPDATES:
        return Compilation(False, f"off ({many(updates, 'update')})")
    stored = StoredTiming(learners, spec)
    known = stored.read()
    if known is not None and known.gain < MIN_GAIN:
        return Compilation(False, f"off (an update was {known.gain:.2f} times as fast in an earlier run)")
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            source = trial_source(learners, spec, dataset)
            return _compared(learners, source, updates, stored, known, show)
    except Exception as error:  # by the compiler, or by a learner that cannot be copied
        problem = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        warn(f"the updates are not compiled, because timing them failed ({problem}); set compile to on or off")
        return Compilation(False, f"off ({problem})")


def _compared(
    learners: Sequence[Learner], source: Any, updates: int, stored: StoredTiming, known: Timing | None,
    show: Show | None,
) -> Compilation:  # fmt: skip
    plain = TimedUpdates(learners, source)
    plain.warm_up()
    needed = _needed_seconds(plain.device, known) / updates
    (seconds,) = time_in_turns([plain], needed)
    if seconds < needed:
        took = f"{updates:,} updates of {1000 * seconds:.3g} ms take {updates * seconds:.0f} s"
        return Compilation(False, f"off ({took}, compiling pays off from {updates * needed:.0f} s on)")
    compiled = TimedUpdates(learners, source, compile=True)
    with waiting_for(compilation_wait(), show):
        cost = compiled.warm_up()
    before, after = time_in_turns([plain, compiled])
    stored.write(Timing(before / after, cost * (FROM_CACHE if known is None else 1)))
    reason = f"update {1000 * before:.3g} -> {1000 * after:.3g} ms"
    if before < MIN_GAIN * after:
        return Compilation(False, f"off ({reason})")
    # Your own learners may have state besides their tensors, which the updates have changed.
    trained = compiled.rewound() if learners[0].is_traceable else None
    return Compilation(True, f"on ({reason})", trained)


def _needed_seconds(device: torch.device, known: Timing | None) -> float:
    """Returns the seconds that all updates of a run must take without compilation to try it."""
    if known is None:
        return MIN_SECONDS[device.type]
    return MIN_RETURN * known.cost / (1 - 1 / known.gain)
