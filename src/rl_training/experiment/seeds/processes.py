"""Seeds in processes of their own, which tell the one that started them how far they are and what went wrong."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, NamedTuple

from rl_training.experiment.agent import say
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.mistakes import MISTAKES, message_of
from rl_training.experiment.run import run_training
from rl_training.experiment.signals import hidden_from_ctrl_c, pass_on
from rl_training.runtime.callbacks.progress import REFRESH_SECONDS, ShowProgress
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState


class SeedError(RuntimeError):
    """The process of a seed failed, by no mistake of the user's."""


class Seen(NamedTuple):
    """How far a seed is, and how well it does."""

    step: int
    episode_return: float | None
    evaluation: float | None


class Failure(NamedTuple):
    """What went wrong in a seed, in parts that every process can read."""

    kind: type[Exception]
    message: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Of its own kind, where that is Python's or ours; else of the nearest kind of mistake, or a SeedError."""
        mistakes = [kind for kind in type(error).__mro__ if kind in MISTAKES]
        kind = next((kind for kind in (type(error), *mistakes) if _made_of_a_sentence(kind)), SeedError)
        message = str(error) if mistakes or kind is type(error) else message_of(error)
        return cls(kind, message, "".join(traceback.format_exception(error)))


class SeedProcess:
    """`seen` and `failure` are what it has told of itself."""

    def __init__(self, config: TrainConfig, callbacks: Sequence[Callback], *, fresh: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.seed = config.seed
        self.seen: Seen | None = None
        self.failure: Failure | None = None
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_train_one, args=(config, callbacks, fresh, theirs))
        with hidden_from_ctrl_c():
            self.process.start()
        theirs.close()

    @property
    def mistaken(self) -> bool:
        return self.failure is not None and issubclass(self.failure.kind, MISTAKES)

    def hear(self, say: Callable[[str], None]) -> None:
        """Take in what it has told since; `say` gets what is meant for people."""
        try:
            while not self.pipe.closed and self.pipe.poll():
                told = self.pipe.recv()
                if isinstance(told, Seen):
                    self.seen = told
                elif isinstance(told, Failure):
                    self.failure = told
                else:
                    say(told)
        except (EOFError, OSError):  # it has ended
            self.pipe.close()

    def stop(self, number: int) -> None:
        """Ask it to save and end, as the signal did that came; asked again, it ends at once."""
        if self.process.pid is not None and self.process.is_alive():
            pass_on(number, self.process.pid)

    def refuse_failure(self) -> None:
        """Raise what went wrong in it, if anything did: a mistake just as a single run raises it."""
        told, code = self.failure, self.process.exitcode or 0
        if told is not None:
            whose = "" if self.mistaken else f"seed {self.seed}: "
            raise told.kind(f"{whose}{told.message}") from SeedError(told.trace)
        if code:
            ending = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise SeedError(f"seed {self.seed} {ending}")


def _made_of_a_sentence(kind: type[Exception]) -> bool:
    """Whether it is Python's or ours, takes a message and tells it as it is: KeyError quotes it, UnicodeDecodeError
    takes more, and a BrokenPipeError would be taken for that of our own output."""
    if kind is BrokenPipeError or not (kind.__module__ == "builtins" or kind.__module__.startswith("rl_training.")):
        return False
    try:
        return str(kind("what it was")) == "what it was"
    except TypeError:
        return False


class Together:
    """Seeds in processes as one training to watch: steps are summed, from those `taken` before on; scores averaged."""

    def __init__(self, configs: Sequence[TrainConfig], taken: Mapping[int, int], *, quiet: bool) -> None:
        self.total_timesteps, self.taken = sum(config.duration for config in configs), taken
        self.seeds: list[SeedProcess] = []
        self._progress = None if quiet else ShowProgress()
        self._said: set[str] = set()
        self._shown = False

    @property
    def global_step(self) -> int:
        seen = {seed.seed: seed.seen.step for seed in self.seeds if seed.seen is not None}
        return sum({**self.taken, **seen}.values())

    @property
    def metrics(self) -> dict[str, float | None]:
        return {"episode_return": _mean([seed.seen and seed.seen.episode_return for seed in self.seeds])}

    @property
    def evaluation(self) -> dict[str, Any] | None:
        mean = _mean([seed.seen and seed.seen.evaluation for seed in self.seeds])
        return None if mean is None else {"return_mean": mean}

    @property
    def mistaken(self) -> bool:
        return any(seed.mistaken for seed in self.seeds)

    def look(self) -> list[SeedProcess]:
        """Hear what the seeds have to tell, and show it; those that still run."""
        running = [seed for seed in self.seeds if seed.process.is_alive()]
        for seed in self.seeds:
            seed.hear(partial(self._say_once, seed.seed))
        if self._progress is not None and self.seeds and self.seeds[0].seen is not None:  # it has introduced them all
            show = self._progress.on_step_end if self._shown else self._progress.on_train_start
            show(self)
            self._shown = True
        return running

    def end(self) -> None:
        """Leave no process behind."""
        for seed in self.seeds:
            seed.process.terminate()
        for seed in self.seeds:
            seed.process.join()
        if self._progress is not None and self._shown:
            self._progress.on_train_end(self)

    def refuse_failures(self) -> None:
        """Mistakes first: they have ended the others."""
        for seed in sorted(self.seeds, key=lambda seed: not seed.mistaken):
            seed.refuse_failure()

    def _say_once(self, seed: int, message: str) -> None:
        if message not in self._said:
            say(f"seed {seed}: {message}")
        self._said.add(message)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


class Report(Callback):
    """Tells how far the run is, now and then; a run that nobody waits for any more saves and ends."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self._told = pipe, 0.0
        self.began = False

    def on_train_start(self, state: TrainerState) -> None:
        self.began = True
        self._tell(state)

    def on_step_end(self, state: TrainerState) -> None:
        if state.over or time.monotonic() - self._told > REFRESH_SECONDS:
            self._tell(state)

    def _tell(self, state: TrainerState) -> None:
        self._told = time.monotonic()
        evaluation = None if state.evaluation is None else state.evaluation["return_mean"]
        step = min(state.global_step, state.total_timesteps)
        try:
            self.pipe.send(Seen(step, state.metrics.get("episode_return"), evaluation))
        except OSError:
            state.request_stop("the process that started it is gone")


def _train_one(config: TrainConfig, callbacks: Sequence[Callback], fresh: bool, pipe: Connection) -> None:
    report = Report(pipe)

    def end(number: int, frame: Any) -> None:
        if not report.began:  # once it trains, it saves first, and then it ends anyway
            sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)

    def tell(what: str | Failure) -> None:
        with suppress(OSError):
            pipe.send(what)

    try:
        run_training(config, callbacks=[*callbacks, report], fresh=fresh, say=tell)
    except KeyboardInterrupt:  # asked for the second time
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        tell(Failure.of(error))
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway, and an exit in the exit is told as an error
