"""Lets a request to stop end an environment call that does not return."""

import threading


class Interrupted(KeyboardInterrupt):
    """A request to stop has ended an environment call; the environments are in an unknown state."""


class EnvironmentCalls(threading.local):
    """Marks the environment calls of each thread. Only they may be interrupted."""

    running = False

    def __enter__(self) -> None:
        self.running = True

    def __exit__(self, *_: object) -> None:
        self.running = False

    def interrupt(self) -> None:
        """Raises `Interrupted` if this thread is in an environment call."""
        if self.running:
            raise Interrupted


environment_calls = EnvironmentCalls()
