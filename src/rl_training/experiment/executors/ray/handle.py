"""A command on a Ray cluster: a thread follows its actor and forwards requests to stop."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import rl_training
from rl_training.experiment.executors.base import LOG, Command, Handle
from rl_training.experiment.executors.ray.copies import Copies
from rl_training.experiment.executors.ray.resources import Resources
from rl_training.experiment.executors.ray.worker import OUTPUT_OPTION, RayWorker
from rl_training.messages import print_warning

POLL_SECONDS, LONGEST_POLL = 0.2, 1.0  # at the start, and after a while
NODES_SECONDS = 10.0  # between looks at the nodes of the cluster
UNPLACED_SECONDS = 300.0  # a command that no node can hold any more fails after this time
RETRY_SECONDS = 2.0  # processes that were killed keep their locks for a moment
ATTEMPTS = 5


class StoppedError(Exception):
    """The command was stopped before it started; `args` holds the signal."""


class RayHandle(Handle):
    """Follows one command through at most `ATTEMPTS` actors, each after the death of the one before."""

    def __init__(self, command: Command, resources: Resources, token: str) -> None:
        self.started = False
        self._command, self._resources, self._token = command, resources, token
        self._root, self._below = output_of(command)
        self._code: int | None = None
        self._requests: list[int] = []
        self._forwarded = 0
        self._woken = threading.Event()
        self._actor: Any = None
        self._killed = False
        self._node = "a node"
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def poll(self) -> int | None:
        return self._code

    def stop(self, number: int) -> None:
        self._requests.append(number)
        self._woken.set()

    def kill(self) -> None:
        self._killed = True
        _kill(self._actor)

    def _follow(self) -> None:
        code = 1
        try:
            code = self._attempts()
        except StoppedError as stopped:
            code = -stopped.args[0]
        except Exception as error:
            self._fail(_one_line(error))
        finally:
            self._code = code

    def _attempts(self) -> int:
        from ray.exceptions import RayError, RayTaskError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt()
            except RayTaskError as error:
                return self._fail(f"on {self._node}: {_one_line(error.cause)}")
            except RayError as error:
                self.started = False
                if self._killed or self._requests:
                    return -signal.SIGKILL
                if "No module named" in str(error):
                    return self._fail("rl_training is not installed on every node of the Ray cluster")
                lost = f"its worker on {self._node} died{_reason(error)}"
                if attempt == ATTEMPTS:
                    break
                print_warning(f"{self._command.name}: {lost}; it continues from its last checkpoint on another worker")
                time.sleep(RETRY_SECONDS)
        return self._fail(f"{lost}, {ATTEMPTS} times")

    def _fail(self, message: str) -> int:
        """Records why the command could not be run, also at the end of its log."""
        self.error = message
        self._command.folder.mkdir(parents=True, exist_ok=True)
        with (self._command.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"error: {message}\n")
        return 1

    def _attempt(self) -> int:
        import ray

        actor = self._actor = ray.remote(**self._resources.options())(RayWorker).remote()
        try:
            place = str(self._root), self._below, self._token
            self._node, version, shared = self._placed(actor.prepare.remote(os.getcwd(), *place))
            if version != rl_training.__version__:
                return self._fail(f"{self._node} has rl_training {version}, and this machine {rl_training.__version__}")
            copies = None
            if not shared:
                copies = Copies(actor, self._command.folder, self._root, self._below, lambda: self._forward(actor))
                copies.send(self._command.arguments)
            ray.get(actor.start.remote(str(self._command.folder.absolute()), *self._command.arguments))
            self.started = True
            code = self._watch(actor, copies)
            ray.get(actor.remove.remote())
            return code
        finally:
            _kill(actor)

    def _placed(self, prepared: Any) -> tuple[str, str, bool]:
        """Waits until Ray has started the actor on a node."""
        import ray

        unplaced, looked = None, time.monotonic()
        while not ray.wait([prepared], timeout=POLL_SECONDS)[0]:
            if self._requests or self._killed:
                raise StoppedError(self._requests[0] if self._requests else signal.SIGKILL)
            now = time.monotonic()
            if now - looked < NODES_SECONDS:
                continue
            looked = now
            if self._resources.fit_somewhere():
                unplaced = None
            elif unplaced is None:
                unplaced = now
                print_warning(f"{self._command.name}: waits, because {self._resources.refusal()}")
            elif now - unplaced > UNPLACED_SECONDS:
                raise RuntimeError(self._resources.refusal())
        name, version, shared = ray.get(prepared)
        return name, version, shared

    def _watch(self, actor: Any, copies: Copies | None) -> int:
        """Waits for the end of the process and returns its exit code."""
        import ray

        self._forwarded, began = 0, time.monotonic()
        while True:
            self._forward(actor)
            code, checkpoints = ray.get(actor.poll.remote())
            if copies is not None:
                copies.fetch(checkpoints, ended=code is not None)
            if code is not None:
                return int(code)
            self._woken.wait(min(POLL_SECONDS + (time.monotonic() - began) / 100, LONGEST_POLL))
            self._woken.clear()

    def _forward(self, actor: Any) -> None:
        import ray

        while self._forwarded < len(self._requests):
            ray.get(actor.stop.remote(self._requests[self._forwarded]))
            self._forwarded += 1


def output_of(command: Command) -> tuple[Path, str]:
    """The folder after --output, and the part of it that the command writes: one folder, or "" for all of it."""
    words = command.arguments
    place = next((place for place, word in enumerate(words[:-1]) if word == OUTPUT_OPTION), None)
    if place is None:
        raise ValueError(f"{command.name} has no {OUTPUT_OPTION}, so its files could not be copied")
    root, folder = Path(words[place + 1]).absolute(), command.folder.absolute()
    parts = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    return root, parts[0] if parts and not parts[0].startswith(".") else ""


def _kill(actor: Any) -> None:
    import ray

    if actor is not None and ray.is_initialized():
        ray.kill(actor)


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__} {error}"
    return " for lack of memory (--memory reserves more)" if "OutOfMemory" in text or "low on memory" in text else ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
