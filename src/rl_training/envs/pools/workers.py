"""Environments in worker processes. Steps go through shared memory, everything else through pipes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs.pools.group import EnvError, EnvGroup, GroupStep
from rl_training.envs.pools.layout import Layout
from rl_training.envs.pools.shared_rows import SharedRows
from rl_training.envs.pools.worker_process import CLOSING_SECONDS, Worker, WorkerDied
from rl_training.messages import Warn
from rl_training.processes import shares_the_machine, usable_cores

MAX_RESTARTS = 20  # of all workers of a pool together
SILENT_SECONDS = 60.0  # without a reply, before a warning
DIED = "its worker process died"


class TooManyRestarts(EnvError):
    """More workers died than `max_env_restarts` allows."""


class Part(NamedTuple):
    """The rows of a request that one worker has."""

    worker: int
    own: slice  # in the worker
    asked: slice  # in the request


class Workers:
    """Has the interface of `EnvGroup`, but splits the environments over processes and replaces dead ones.

    `env` has the spaces of the environments. All arrays that are returned are copies from shared memory.
    """

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], env: gym.Env[Any, Any], workers: int, *, layout: Layout, kind: str,
        max_restarts: int, warn: Warn,
    ) -> None:  # fmt: skip
        self._build, self._layout = partial(_build_group, make, layout=layout, kind=kind), layout
        bounds = [layout.count * worker // workers for worker in range(workers + 1)]
        self._shares = [slice(start, stop) for start, stop in pairwise(bounds)]
        self._episodes = np.full(layout.count, -1)
        self._shared = SharedRows(layout.count, env.observation_space, env.action_space)
        self._obs = self._shared.arrays.next_obs.copy()
        self.restarts, self._max_restarts, self._warn = 0, max_restarts, warn
        self._spins = usable_cores() > workers and not shares_the_machine()
        self._workers = [self._start(share) for share in self._shares]
        self._await_start()

    def reset(self) -> np.ndarray:
        replies = self._ask("reset", dict.fromkeys(range(len(self._workers)), ()))
        parts = [self._revive(number) if reply is None else reply for number, reply in replies.items()]
        self._episodes += 1
        self._obs = np.concatenate(parts)
        return self._obs

    def begin_step(self, actions: np.ndarray) -> None:
        self._shared.arrays.actions[:] = actions
        for worker in self._workers:
            worker.begin_step()

    def end_step(self) -> GroupStep:
        for worker in self._workers:
            worker.await_step()
        replies = self._receive("step", range(len(self._workers)))
        dead = [number for number, reply in replies.items() if reply is None]
        shared = self._shared.arrays
        next_obs, rewards = shared.next_obs.copy(), shared.rewards.tolist()
        terminated, truncated = shared.terminated.copy(), shared.truncated.copy()
        for number in dead:  # the episodes are truncated at their last observations
            rows = self._shares[number]
            next_obs[rows], rewards[rows] = self._obs[rows], [0.0] * self._size(number)
            terminated[rows], truncated[rows] = False, True
        over = terminated | truncated
        ended = np.flatnonzero(over)
        if not len(ended):
            self._obs = next_obs
            return GroupStep(next_obs, rewards, terminated, truncated, None, [])
        obs = next_obs.copy()
        obs[ended] = shared.first_obs[ended]
        for number in dead:
            obs[self._shares[number]] = self._revive(number)
            over[self._shares[number]] = False
        self._episodes[ended] += 1
        self._obs = obs
        return GroupStep(next_obs, rewards, terminated, truncated, obs, np.flatnonzero(over).tolist())

    def snapshot(self, rows: slice) -> list[dict[str, Any]]:
        states = [{"kind": "lost with its worker", "episode": episode} for episode in self._episodes[rows].tolist()]
        parts = self._parts(rows)
        replies = self._ask("snapshot", {part.worker: (part.own,) for part in parts})
        for part in parts:
            if replies[part.worker] is not None:
                states[part.asked] = replies[part.worker]
        return states

    def restore(
        self, rows: slice, states: list[dict[str, Any]], obs: np.ndarray
    ) -> tuple[np.ndarray, list[str | None]]:
        self._episodes[rows] = [state["episode"] for state in states]
        parts, current = self._parts(rows), obs.copy()
        replies = self._ask("restore", {part.worker: (part.own, states[part.asked], obs[part.asked]) for part in parts})
        reasons: list[str | None] = [DIED] * len(states)
        for part in parts:
            reply, count = replies[part.worker], part.own.stop - part.own.start
            if reply is None and count == self._size(part.worker):
                reply = self._revive(part.worker), [DIED] * count
            if reply is not None:  # otherwise the next step replaces the worker and truncates all its episodes
                current[part.asked], reasons[part.asked] = reply
                self._episodes[rows][part.asked] += [reason is not None for reason in reply[1]]
        self._obs = self._obs.copy()
        self._obs[rows] = current
        return current, reasons

    def close(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        for worker in self._workers:
            worker.hang_up(deadline)
        for worker in self._workers:
            worker.close()
        self._shared.close()

    def _await_start(self) -> None:
        for worker in self._workers:
            try:
                worker.receive()
            except EnvError:
                self.close()
                raise
            except WorkerDied:
                end = worker.end()
                self.close()
                raise EnvError(f"a worker process of the environments {end}") from None

    def _start(self, share: slice) -> Worker:
        build = partial(self._build, share.start, self._episodes[share].tolist())
        return Worker(build, self._shared, share, spins=self._spins)

    def _size(self, number: int) -> int:
        return self._shares[number].stop - self._shares[number].start

    def _parts(self, rows: slice) -> list[Part]:
        parts = []
        for number, share in enumerate(self._shares):
            start, stop = max(rows.start, share.start), min(rows.stop, share.stop)
            if start < stop:
                own, asked = (slice(start - first, stop - first) for first in (share.start, rows.start))
                parts.append(Part(number, own, asked))
        return parts

    def _ask(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls a method in workers in parallel, given their numbers; the reply of a dead worker is None."""
        for number, args in arguments.items():
            self._workers[number].send(method, *args)
        return self._receive(method, arguments)

    def _receive(self, method: str, numbers: Iterable[int]) -> dict[int, Any]:
        deadline = time.monotonic() + SILENT_SECONDS
        for number in numbers:  # all of them before a reply is waited for without a limit
            if not self._workers[number].replies_within(max(0.0, deadline - time.monotonic())):
                self._warn(f"{self._name(number)} has not replied for {SILENT_SECONDS:.0f} seconds in {method}")
        replies, failures = {}, []
        for number in numbers:
            try:
                replies[number] = self._workers[number].receive()
            except WorkerDied:
                replies[number] = None
            except EnvError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return replies

    def _revive(self, number: int) -> np.ndarray:
        """Replaces a dead worker and returns the first observations of the next episodes."""
        while True:
            self._count_death(number)
            worker = self._workers[number] = self._start(self._shares[number])
            worker.send("reset")
            with suppress(WorkerDied):
                worker.receive()  # the startup message
                return worker.receive()

    def _count_death(self, number: int) -> None:
        """Warns of a dead worker; raises TooManyRestarts if it may not be replaced."""
        death = f"{self._name(number)} {self._workers[number].end()}"
        if self.restarts >= self._max_restarts:
            raise TooManyRestarts(
                f"{death}, and max_env_restarts ({self._max_restarts}) allows no other restart; "
                "look at the output of the worker, or use env_workers 0 to see the error"
            )
        self.restarts += 1
        self._warn(
            f"{death}; its episodes are truncated and it is restarted "
            f"(restart {self.restarts} of at most {self._max_restarts})"
        )

    def _name(self, number: int) -> str:
        return f"worker {number} ({self._layout.names(self._shares[number])})"


def _build_group(
    make: Callable[[], gym.Env[Any, Any]], first: int, episodes: list[int], *, layout: Layout, kind: str
) -> EnvGroup:
    return EnvGroup([make() for _ in episodes], first, episodes=episodes, layout=layout, kind=kind)
