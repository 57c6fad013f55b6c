"""Environments spread over processes, with one pipe to each."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.group import EnvError, EnvGroup, Moved

MAX_RESTARTS = 3  # of one worker; what dies more often dies for a reason
CLOSING_SECONDS = 5.0  # what a worker is given to close its environments


class Workers:
    """The same as one group, spread over processes; a process that dies is replaced."""

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], num_envs: int, workers: int, *, seed: int, kind: str
    ) -> None:
        self._build = partial(_build_group, make, seed=seed, kind=kind)
        bounds = [num_envs * worker // workers for worker in range(workers + 1)]
        self._shares = [slice(start, stop) for start, stop in pairwise(bounds)]
        self._episodes = np.full(num_envs, -1)
        self._obs = np.empty(0)
        self._deaths = [0] * workers
        self._workers = [self._start(share) for share in self._shares]
        self._await_start()

    @property
    def restarts(self) -> int:
        return sum(self._deaths)

    def reset(self) -> np.ndarray:
        replies = self._ask("reset", [()] * len(self._workers))
        parts = [self._revive(number) if reply is None else reply for number, reply in enumerate(replies)]
        self._episodes += 1
        self._obs = np.concatenate(parts)
        return self._obs

    def step(self, actions: np.ndarray) -> Moved:
        replies = self._ask("step", [(actions[share],) for share in self._shares])
        parts = [self._lost_step(number) if reply is None else reply for number, reply in enumerate(replies)]
        next_obs, terminated, truncated = (
            np.concatenate(column)
            for column in zip(*((part.next_obs, part.terminated, part.truncated) for part in parts), strict=True)
        )
        obs = None
        if any(part.obs is not None for part in parts):
            obs = np.concatenate([part.next_obs if part.obs is None else part.obs for part in parts])
            self._episodes += terminated | truncated
        self._obs = next_obs if obs is None else obs
        rewards, ended = [r for part in parts for r in part.rewards], [env for part in parts for env in part.ended]
        return Moved(next_obs, rewards, terminated, truncated, obs, ended)

    def snapshot(self) -> list[dict[str, Any]]:
        replies = self._ask("snapshot", [()] * len(self._workers))
        lost = [{"kind": "lost with its worker", "episode": episode} for episode in self._episodes.tolist()]
        parts = [lost[share] if reply is None else reply for share, reply in zip(self._shares, replies, strict=True)]
        return [state for part in parts for state in part]

    def restore(self, states: list[dict[str, Any]], obs: np.ndarray) -> tuple[np.ndarray, list[str | None]]:
        self._episodes[:] = [state["episode"] for state in states]
        replies = self._ask("restore", [(states[share], obs[share]) for share in self._shares])
        for number, share in enumerate(self._shares):
            if replies[number] is None:
                replies[number] = self._revive(number), ["its worker died meanwhile"] * len(states[share])
        reasons = [reason for _, part in replies for reason in part]
        self._episodes += [reason is not None for reason in reasons]
        self._obs = np.concatenate([part for part, _ in replies])
        return self._obs, reasons

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _await_start(self) -> None:
        try:
            for worker in self._workers:
                worker.receive()
        except EnvError:
            self.close()
            raise
        except WorkerDied as error:
            self.close()
            raise RuntimeError(
                "a worker died while it started; a script that uses workers must begin its work under "
                "if __name__ == '__main__', since every worker imports it"
            ) from error

    def _start(self, share: slice) -> Worker:
        return Worker(partial(self._build, share.start, self._episodes[share].tolist()))

    def _ask(self, method: str, arguments: list[Any]) -> list[Any]:
        """What the workers answer, all at work at once; None where one has died."""
        for worker, args in zip(self._workers, arguments, strict=True):
            worker.send(method, *args)
        replies, failures = [], []
        for worker in self._workers:
            try:
                replies.append(worker.receive())
            except WorkerDied:
                replies.append(None)
            except EnvError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return replies

    def _revive(self, number: int) -> np.ndarray:
        """A new process in the place of one that died: the first observations of its environments' next episodes."""
        while self._deaths[number] < MAX_RESTARTS:
            self._deaths[number] += 1
            self._workers[number].close()
            worker = self._workers[number] = self._start(self._shares[number])
            worker.send("reset")
            with suppress(WorkerDied):
                worker.receive()  # that it has started
                return worker.receive()
        share = self._shares[number]
        raise RuntimeError(
            f"the worker of environments {share.start} to {share.stop - 1} has died {MAX_RESTARTS + 1} times; "
            "what it prints before it dies, or workers=0, may show why"
        )

    def _lost_step(self, number: int) -> Moved:
        """The step in which a worker died: the episodes stop where they were last seen."""
        last = self._obs[self._shares[number]]
        false = np.zeros(len(last), bool)
        return Moved(last, [0.0] * len(last), false, ~false, self._revive(number), [])


class WorkerDied(Exception):
    """The process at the other end of the pipe is gone."""


class Worker:
    """A group in a process of its own, which leaves when the pipe closes and so never outlives this one."""

    def __init__(self, build: Callable[[], EnvGroup]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, build), daemon=True)
        try:
            self.process.start()
        except OSError:  # the machine's fault, not the function's
            raise
        except Exception as error:
            raise TypeError(
                "with workers, env_id must be an id or a function that other processes can import (no lambda)"
            ) from error
        theirs.close()
        # Runs on close, on garbage collection, and at exit before multiprocessing waits for its children.
        self.close = Finalize(self, _close, (self._pipe, self.process), exitpriority=10)

    def send(self, method: str, *args: Any) -> None:
        with suppress(OSError):  # a dead worker is noticed where its reply is missing
            self._pipe.send((method, args))

    def receive(self) -> Any:
        try:
            fine, reply = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied from error
        if not fine:
            raise EnvError(reply)
        return reply


def _close(pipe: Connection, process: BaseProcess) -> None:
    pipe.close()
    process.join(CLOSING_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def serve(pipe: Connection, build: Callable[[], EnvGroup]) -> None:
    """What a worker process does: build its group, say so, then answer until the pipe closes."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # meant for the run, which saves first and then closes the pipe
        signal.signal(signum, signal.SIG_IGN)
    built, group = _attempt(build)
    with suppress(EOFError, OSError):
        pipe.send((built, None if built else group))
        while built:
            method, args = pipe.recv()
            pipe.send(_attempt(getattr(group, method), *args))
    if built:
        group.close()


def _build_group(
    make: Callable[[], gym.Env[Any, Any]], first: int, episodes: list[int], *, seed: int, kind: str
) -> EnvGroup:
    return EnvGroup([make() for _ in episodes], first, episodes=episodes, seed=seed, kind=kind)


def _attempt(call: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """(True, the result), or (False, the error and its traceback as text)."""
    try:
        return True, call(*args)
    except Exception as error:
        return False, f"{error}\n\n{traceback.format_exc()}"
