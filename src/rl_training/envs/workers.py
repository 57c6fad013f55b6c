"""Environments in worker processes, connected by pipes."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
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
from rl_training.messages import Warn, describe_error
from rl_training.processes import describe_exit, end_with_parent, start_hidden

MAX_RESTARTS = 20  # of all workers of a pool together
SILENT_SECONDS = 60.0  # without a reply, before a warning
CLOSING_SECONDS = 3.0  # time limit for the workers to close their environments
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class TooManyRestarts(EnvError):
    """More workers died than `max_env_restarts` allows."""


class Workers:
    """Has the interface of `EnvGroup`, but splits the environments over processes and replaces dead ones."""

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], num_envs: int, workers: int, *, seed: int, kind: str,
        max_restarts: int, warn: Warn,
    ) -> None:  # fmt: skip
        self._build = partial(_build_group, make, seed=seed, kind=kind)
        bounds = [num_envs * worker // workers for worker in range(workers + 1)]
        self._shares = [slice(start, stop) for start, stop in pairwise(bounds)]
        self._episodes = np.full(num_envs, -1)
        self._obs = np.empty(0)
        self.restarts, self._max_restarts, self._warn = 0, max_restarts, warn
        self._workers = [self._start(share) for share in self._shares]
        self._await_start()

    def reset(self) -> np.ndarray:
        replies = self._ask("reset", [()] * len(self._workers))
        parts = [self._revive(number) if reply is None else reply for number, reply in enumerate(replies)]
        self._episodes += 1
        self._obs = np.concatenate(parts)
        return self._obs

    def begin_step(self, actions: np.ndarray) -> None:
        self._send("step", [(actions[share],) for share in self._shares])

    def end_step(self) -> GroupStep:
        replies = self._receive("step")
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
        deadline = time.monotonic() + CLOSING_SECONDS
        for worker in self._workers:
            worker.hang_up(deadline)
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
            raise EnvError(
                "a worker process died at startup; guard the script's entry point with "
                "if __name__ == '__main__':, because every worker imports the script"
            ) from error

    def _start(self, share: slice) -> Worker:
        return Worker(partial(self._build, share.start, self._episodes[share].tolist()))

    def _ask(self, method: str, arguments: list[Any]) -> list[Any]:
        """Calls a method in all workers in parallel; the reply of a dead worker is None."""
        self._send(method, arguments)
        return self._receive(method)

    def _send(self, method: str, arguments: list[Any]) -> None:
        for worker, args in zip(self._workers, arguments, strict=True):
            worker.send(method, *args)

    def _receive(self, method: str) -> list[Any]:
        deadline = time.monotonic() + SILENT_SECONDS
        for number, worker in enumerate(self._workers):  # all of them before a reply is waited for without a limit
            if not worker.replies_within(max(0.0, deadline - time.monotonic())):
                self._warn(f"{self._name(number)} has not replied for {SILENT_SECONDS:.0f} seconds in {method}")
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
        first, last = self._shares[number].start, self._shares[number].stop - 1
        return f"worker {number} (environment{f's {first} to {last}' if last > first else f' {first}'})"

    def _lost_step(self, number: int) -> GroupStep:
        """Returns the step of a dead worker: its episodes are truncated at their last observations."""
        last = self._obs[self._shares[number]]
        false = np.zeros(len(last), bool)
        return GroupStep(last, [0.0] * len(last), false, ~false, self._revive(number), [])


class WorkerDied(Exception):
    """The worker process has ended."""


class WorkerError(Exception):
    """The traceback of an error in a worker process."""


class Worker:
    """An `EnvGroup` in its own process, which exits when the pipe closes."""

    def __init__(self, build: Callable[[], EnvGroup]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_end = context.Pipe()
        lasting = threading.current_thread() is threading.main_thread()
        self.process = context.Process(target=serve, args=(worker_end, build, lasting), daemon=True)
        try:
            start_hidden(self.process, *IGNORED_SIGNALS)
        except OSError:
            raise
        except Exception as error:  # the function cannot be pickled
            raise TypeError(
                "with workers, env_id must be an id or a function that other processes can import, not a lambda"
            ) from error
        worker_end.close()
        # Runs on close, on garbage collection, and at exit before multiprocessing joins its children.
        self._deadline: list[float] = []
        self.close = Finalize(self, _close, (self._pipe, self.process, self._deadline), exitpriority=10)

    def send(self, method: str, *args: Any) -> None:
        with suppress(OSError):  # `receive` reports a dead worker
            self._pipe.send((method, args))

    def replies_within(self, seconds: float) -> bool:
        try:
            return self._pipe.poll(seconds)
        except OSError:
            return True  # `receive` reports a dead worker

    def receive(self) -> Any:
        try:
            succeeded, reply = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied from error
        if not succeeded:
            message, trace = reply
            raise EnvError(message) from WorkerError(trace)
        return reply

    def hang_up(self, deadline: float) -> None:
        """Closes the pipe, which asks the worker to end; `close` waits for it until the deadline."""
        self._pipe.close()
        self._deadline.append(deadline)

    def end(self) -> str:
        """Describes how a dead worker ended."""
        self.process.join(CLOSING_SECONDS)  # its pipe may close before it ends
        code = self.process.exitcode
        self.close()
        return "closed its pipe" if code is None else describe_exit(code)


def _close(pipe: Connection, process: BaseProcess, deadline: list[float]) -> None:
    pipe.close()
    try:
        process.join(max(0.0, deadline[0] - time.monotonic()) if deadline else CLOSING_SECONDS)
    finally:  # also if a signal ends the waiting
        if process.is_alive():
            process.kill()
            process.join()
        process.close()  # its pipes would stay open until the garbage collector comes


def serve(pipe: Connection, build: Callable[[], EnvGroup], lasting: bool) -> None:
    """Runs in the worker process: builds the group, then serves calls until the pipe closes.

    `lasting`: the thread that started this process lasts as long as the parent process.
    """
    for signum in IGNORED_SIGNALS:  # the parent handles signals, saves and closes the pipe
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    end_with_parent(signalled=lasting)
    built, group = _attempt(build)
    with suppress(EOFError, OSError):
        pipe.send((built, None if built else group))
        while built:
            method, args = pipe.recv()
            pipe.send(_attempt(_step, group, *args) if method == "step" else _attempt(getattr(group, method), *args))
    if built:
        group.close()


def _build_group(
    make: Callable[[], gym.Env[Any, Any]], first: int, episodes: list[int], *, seed: int, kind: str
) -> EnvGroup:
    return EnvGroup([make() for _ in episodes], first, episodes=episodes, seed=seed, kind=kind)


def _step(group: EnvGroup, actions: np.ndarray) -> GroupStep:
    group.begin_step(actions)
    return group.end_step()


def _attempt(call: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    """Returns (True, result), or (False, (error message, traceback))."""
    try:
        return True, call(*args)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of an environment are its errors, too
        message = str(error) if isinstance(error, EnvError) else f"a worker failed: {describe_error(error)}"
        return False, (message, "".join(traceback.format_exception(error)))
