"""A work on a Ray cluster: a thread follows its actor, forwards requests to stop, and copies files back."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from rl_training.experiment.executors.base import LOG, OUTPUT, Handle, Work
from rl_training.experiment.executors.copying.inbox import Inbox
from rl_training.experiment.executors.copying.outbox import Outbox
from rl_training.experiment.executors.copying.snapshots import CopyError, Snapshot, copy_groups
from rl_training.experiment.executors.ray_resources import Resources
from rl_training.experiment.executors.ray_worker import OUTPUT_OPTION, RayWorker
from rl_training.messages import print_warning
from rl_training.runtime.files import write_atomically

POLL_SECONDS = 0.2
COPY_SECONDS = 10.0  # between copies of small files, which show the progress
UNPLACED_SECONDS = 300.0  # a work that no node can hold any more fails after this time
RETRY_SECONDS = 2.0  # processes that were killed keep their locks for a moment
ATTEMPTS = 5


class StoppedError(Exception):
    """The work was stopped before it started; `args` holds the signal."""


class RayHandle(Handle):
    """Follows one work through at most `ATTEMPTS` actors, each after the death of the one before."""

    def __init__(self, work: Work, resources: Resources, token: str) -> None:
        self.started, self.error = False, ""
        self._work, self._resources, self._token = work, resources, token
        self._root, self._below = output_of(work)
        self._code: int | None = None
        self._requests: list[int] = []
        self._actor: Any = None
        self._killed = False
        self._log_size = 0  # of log.txt before this attempt
        self._node = "a node"
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def poll(self) -> int | None:
        return self._code

    def stop(self, number: int) -> None:
        self._requests.append(number)

    def kill(self) -> None:
        self._killed = True
        _kill(self._actor)

    def _follow(self) -> None:
        try:
            self._code = self._attempts()
        except StoppedError as stopped:
            self._code = -stopped.args[0]
        except Exception as error:
            self._fail(f"{self._work.name}: {_one_line(error)}")

    def _attempts(self) -> int | None:
        from ray.exceptions import RayError, RayTaskError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._attempt()
            except RayTaskError as error:
                return self._fail(f"{self._work.name} on {self._node}: {_one_line(error.cause)}")
            except RayError as error:
                self.started = False
                if self._killed or self._requests:
                    return -signal.SIGKILL
                if "No module named" in str(error):
                    return self._fail(f"{self._work.name}: rl_training is not installed on every node of the cluster")
                lost = f"{self._work.name}: its worker on {self._node} died{_reason(error)}"
                if attempt == ATTEMPTS:
                    return self._fail(f"{lost}, {ATTEMPTS} times")
                print_warning(f"{lost}; it continues from its last checkpoint on another worker")
                time.sleep(RETRY_SECONDS)
        return None

    def _fail(self, message: str) -> int:
        self.error = message
        self._work.folder.mkdir(parents=True, exist_ok=True)
        with (self._work.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"error: {message}\n")
        self._code = 1
        return 1

    def _attempt(self) -> int:
        import ray

        actor = self._actor = ray.remote(**self._resources.options())(RayWorker).remote()
        try:
            place = str(self._root), self._below, self._token
            self._node, shared = self._placed(actor.prepare.remote(os.getcwd(), *place))
            copies = None if shared else Copies(actor, self._work.folder, self._root, self._below)
            if copies is not None:
                copies.send()
            ray.get(actor.start.remote(str(self._work.folder.absolute()), *self._work.arguments))
            self.started = True
            return self._watch(actor, copies)
        finally:
            _kill(actor)

    def _placed(self, prepared: Any) -> tuple[str, bool]:
        """Waits until Ray has started the actor on a node."""
        import ray

        unplaced: float | None = None
        while not ray.wait([prepared], timeout=POLL_SECONDS)[0]:
            if self._requests or self._killed:
                raise StoppedError(self._requests[0] if self._requests else signal.SIGKILL)
            if self._resources.fit_somewhere():
                unplaced = None
            elif unplaced is None:
                unplaced = time.monotonic()
                print_warning(f"{self._work.name}: waits, because {self._resources.refusal()}")
            elif time.monotonic() - unplaced > UNPLACED_SECONDS:
                raise RuntimeError(self._resources.refusal())
        name, shared = ray.get(prepared)
        return name, shared

    def _watch(self, actor: Any, copies: "Copies | None") -> int:
        """Waits for the end of the process and returns its exit code."""
        import ray

        forwarded = 0
        while True:
            for number in self._requests[forwarded:]:
                ray.get(actor.stop.remote(number))
                forwarded += 1
            code, checkpoints = ray.get(actor.poll.remote())
            if copies is not None:
                copies.fetch(checkpoints, ended=code is not None)
            if code is not None:
                return int(code)
            time.sleep(POLL_SECONDS)


class Copies:
    """The files of a work that runs on a node without the folder of the driver: sent there first, and copied back."""

    def __init__(self, actor: Any, folder: Path, root: Path, below: str) -> None:
        self._actor, self._folder, self._root, self._below = actor, folder, root, below
        self._checkpoints, self._time = "", time.monotonic()
        self._log_size = (folder / LOG).stat().st_size if (folder / LOG).exists() else 0
        folder.mkdir(parents=True, exist_ok=True)
        self._inbox = Inbox(root, below)

    def send(self) -> None:
        import ray

        outbox = Outbox(self._root, self._below, top_level=True)
        copy_groups(
            outbox.snapshot(), outbox.read, lambda group: group.files,
            lambda *piece: ray.get(self._actor.write.remote(*piece)),
            lambda group: ray.get(self._actor.publish.remote(json.dumps(group))),
        )  # fmt: skip
        outbox.done()

    def fetch(self, checkpoints: str, *, ended: bool) -> None:
        """Copies everything at a new checkpoint and at the end, and small files at times."""
        changed = checkpoints != self._checkpoints
        if not ended and not changed and time.monotonic() - self._time < COPY_SECONDS:
            return
        try:
            self._copy(checkpoints=changed or ended)
            self._checkpoints = checkpoints
        except CopyError:
            if ended:
                raise
        self._time = time.monotonic()  # a file that was cut during the copy is copied next time

    def _copy(self, *, checkpoints: bool) -> None:
        import ray

        actor, inbox = self._actor, self._inbox
        output, log = ray.get(actor.printed.remote())
        write_atomically(self._folder / OUTPUT, output)
        with (self._folder / LOG).open("ab") as file:
            file.truncate(self._log_size)
            file.write(log)
        snapshot = Snapshot.from_json(ray.get(actor.snapshot.remote(checkpoints)))
        read = lambda path, offset: ray.get(actor.read.remote(path, offset))  # noqa: E731
        copy_groups(snapshot, read, inbox.wanted, inbox.write, inbox.publish)
        if checkpoints:
            inbox.keep_only(snapshot.checkpoints)
        ray.get(actor.done.remote())


def output_of(work: Work) -> tuple[Path, str]:
    """The folder after --output, and the part of it that the work writes: one folder, or "" for all of it."""
    words = work.arguments
    place = next((place for place, word in enumerate(words[:-1]) if word == OUTPUT_OPTION), None)
    if place is None:
        raise ValueError(f"{work.name} has no {OUTPUT_OPTION}, so its files could not be copied")
    root, folder = Path(words[place + 1]).absolute(), work.folder.absolute()
    parts = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    return root, parts[0] if parts and not parts[0].startswith(".") else ""


def _kill(actor: Any) -> None:
    import ray

    if actor is not None and ray.is_initialized():
        ray.kill(actor)


def _reason(error: Exception) -> str:
    text = str(error)
    if "memory" in type(error).__name__.lower() or "OutOfMemory" in text or "node was low on memory" in text:
        return " for lack of memory (--memory reserves more)"
    return " with its node" if "node" in text.lower() and "died" in text and "NODE_DIED" in text else ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
