"""Environments in worker processes, connected by pipes."""

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

from rl_training.envs.group import EnvError, EnvGroup, GroupStep

MAX_RESTARTS = 3  # per worker
CLOSING_SECONDS = 5.0  # time limit for a worker to close its environments


class Workers:
    """Has the interface of `EnvGroup`, but splits the environments over processes and replaces dead ones."""

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

    def step(self, actions: np.ndarray) -> GroupStep:
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
        return GroupStep(next_obs, rewards, terminated, truncated, obs, ended)

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
                replies[number] = self._revive(number), ["its worker process died"] * len(states[share])
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
                "a worker process died at startup; guard the script's entry point with "
                "if __name__ == '__main__':, because every worker imports the script"
            ) from error

    def _start(self, share: slice) -> Worker:
        return Worker(partial(self._build, share.start, self._episodes[share].tolist()))

    def _ask(self, method: str, arguments: list[Any]) -> list[Any]:
        """Calls a method in all workers in parallel; the reply of a dead worker is None."""
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
        """Replaces a dead worker and returns the first observations of the next episodes."""
        while self._deaths[number] < MAX_RESTARTS:
            self._deaths[number] += 1
            self._workers[number].close()
            worker = self._workers[number] = self._start(self._shares[number])
            worker.send("reset")
            with suppress(WorkerDied):
                worker.receive()  # the startup message
                return worker.receive()
        share = self._shares[number]
        raise RuntimeError(
            f"the worker of environments {share.start} to {share.stop - 1} died {MAX_RESTARTS + 1} times; "
            "check its output, or use workers=0 to see the error"
        )

    def _lost_step(self, number: int) -> GroupStep:
        """Returns the step of a dead worker: its episodes are truncated at their last observations."""
        last = self._obs[self._shares[number]]
        false = np.zeros(len(last), bool)
        return GroupStep(last, [0.0] * len(last), false, ~false, self._revive(number), [])


class WorkerDied(Exception):
    """The worker process has ended."""


class Worker:
    """An `EnvGroup` in its own process, which exits when the pipe closes."""

    def __init__(self, build: Callable[[], EnvGroup]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        self.process = context.Process(target=serve, args=(worker_end, build), daemon=True)
        try:
            self.process.start()
        except OSError:
            raise
        except Exception as error:  # the function cannot be pickled
            raise TypeError(
                "with workers, env_id must be an id or a function that other processes can import, not a lambda"
            ) from error
        worker_end.close()
        # Runs on close, on garbage collection, and at exit before multiprocessing joins its children.
        self.close = Finalize(self, _close, (self._pipe, self.process), exitpriority=10)

    def send(self, method: str, *args: Any) -> None:
        with suppress(OSError):  # `receive` reports a dead worker
            self._pipe.send((method, args))

    def receive(self) -> Any:
        try:
            succeeded, reply = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied from error
        if not succeeded:
            raise EnvError(reply)
        return reply


def _close(pipe: Connection, process: BaseProcess) -> None:
    pipe.close()
    process.join(CLOSING_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def serve(pipe: Connection, build: Callable[[], EnvGroup]) -> None:
    """Runs in the worker process: builds the group, then serves calls until the pipe closes."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # the parent handles signals, saves and closes the pipe
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
    """Returns (True, result), or (False, error message with traceback)."""
    try:
        return True, call(*args)
    except Exception as error:
        return False, f"{error}\n\n{traceback.format_exc()}"
