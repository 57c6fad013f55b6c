"""Shows the progress and the messages of several seeds that train at the same time."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol

from rl_training.messages import print_warning
from rl_training.runtime.callbacks.progress import ShowProgress

HOLD_SECONDS = 5.0  # seeds that start together send the same warning within this time


class SeedProgress(NamedTuple):
    step: int
    episode_return: float | None
    evaluation: float | None


class ShownSeed(Protocol):
    seed: int
    progress: SeedProgress | None
    messages: list[str]


class SeedMessages:
    """Prints each message once; with the seed only if no other seed has sent it in HOLD_SECONDS."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, set[int]]] = {}
        self._printed: set[str] = set()

    def add(self, seed: int, message: str) -> None:
        if message not in self._printed:
            self._held.setdefault(message, (time.monotonic(), set()))[1].add(seed)

    def show(self, seeds: int, *, closing: bool = False) -> None:
        """Prints messages of all `seeds`, and others after their time or when `closing`."""
        for message, (began, senders) in list(self._held.items()):
            if closing or len(senders) == seeds or time.monotonic() - began > HOLD_SECONDS:
                print_warning(message if len(senders) > 1 else f"seed {min(senders)}: {message}")
                self._printed.add(message)
                del self._held[message]


class SeedGroup:
    """Shows several seeds as one training: steps are summed, scores averaged. `taken` holds steps of earlier runs."""

    def __init__(
        self, seeds: Sequence[ShownSeed], total_timesteps: int, taken: Mapping[int, int], *, quiet: bool
    ) -> None:
        self.seeds, self.total_timesteps, self.taken = seeds, total_timesteps, taken
        self._progress = None if quiet else ShowProgress()
        self._messages = SeedMessages()
        self._shown = False

    @property
    def global_step(self) -> int:
        steps = {seed.seed: seed.progress.step for seed in self.seeds if seed.progress is not None}
        return sum({**self.taken, **steps}.values())

    @property
    def metrics(self) -> dict[str, float | None]:
        return {"episode_return": _mean([seed.progress and seed.progress.episode_return for seed in self.seeds])}

    @property
    def evaluation(self) -> dict[str, Any] | None:
        mean = _mean([seed.progress and seed.progress.evaluation for seed in self.seeds])
        return None if mean is None else {"return_mean": mean}

    def show(self) -> None:
        """Prints new messages, each once for all seeds; then updates progress, once the first seed trains."""
        for seed in self.seeds:
            for message in seed.messages:
                self._messages.add(seed.seed, message)
            seed.messages.clear()
        self._messages.show(len(self.seeds))
        if self._progress is not None and self.seeds[0].progress is not None:
            show = self._progress.on_step_end if self._shown else self._progress.on_train_start
            show(self)
            self._shown = True

    def close(self) -> None:
        self._messages.show(len(self.seeds), closing=True)
        if self._progress is not None and self._shown:
            self._progress.on_train_end(self)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
