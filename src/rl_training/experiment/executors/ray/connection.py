"""Connects to a Ray cluster, or to a local Ray that is started for the purpose and bound to this machine alone."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.experiment.executors.ray.node import SETTINGS

START_SECONDS = 120
CONNECT_SECONDS = 30
CLOSE_SECONDS = 20
NODE = "rl_training.experiment.executors.ray.node"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
CLOSED = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # binds every socket to 127.0.0.1
    "RAY_AUTH_MODE": "token",
}
LONGEST_FOLDER = 30  # sockets lie below it, and their paths are limited to 107 characters
AUTO = "auto on a node of the cluster"
ADVICE = "give --address HOST:PORT of a running cluster, or leave --address out to start Ray on this machine"


class RayConnection:
    """The connection of this process to Ray, until `close`."""

    def __init__(self, address: str | None) -> None:
        self._local: subprocess.Popen[str] | None = None
        variables = QUIET if address is not None else {**QUIET, **CLOSED, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        try:
            if address is None:
                address = self._start(variables)
            else:
                _check(address, variables)
            with _environment(variables):
                _connect(address)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnects, and ends the local Ray if there is one."""
        if "ray" in sys.modules:
            import ray

            ray.shutdown()
        if self._local is not None:
            assert self._local.stdin is not None
            self._local.stdin.close()
            try:
                self._local.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._local.kill()  # its children end with it
                self._local.wait()
            self._local = None

    def _start(self, variables: Mapping[str, str]) -> str:
        """Starts a local Ray and returns its address."""
        if "ray" in sys.modules:
            raise ValueError("this process has imported ray already; start Ray and give its address")
        parent = tempfile.gettempdir()
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir=parent if len(parent) <= LONGEST_FOLDER else "/tmp"))
        errors = folder / "start.txt"
        with errors.open("wb") as error_file:
            process = self._local = subprocess.Popen(
                [sys.executable, "-m", NODE, "local", str(folder)], env={**os.environ, **variables},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error_file, text=True, start_new_session=True,
            )  # fmt: skip
        timer = threading.Timer(START_SECONDS, process.kill)
        timer.start()
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        timer.cancel()
        if not address:
            reason = errors.read_text(errors="replace") if errors.exists() else ""
            raise ValueError(f"Ray did not start on this machine: {_last_line(reason)}")
        return address


def _connect(address: str) -> None:
    import ray
    import ray._private.worker

    # Ray would print the deaths of workers to the standard output, which belongs to the result of the command.
    ray._private.worker._worker_logs_enabled = False
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    ray.init(address=address, **SETTINGS)
    if in_main_thread:  # Ray's own handler would exit without saving
        signal.signal(signal.SIGTERM, before)


def _check(address: str, variables: Mapping[str, str]) -> None:
    """Raises an error that states why no connection is possible."""
    if address.startswith("ray://"):
        raise ValueError(f"--address must not be one of Ray Client; give {AUTO}, got {address!r}")
    if address != "auto" and not re.fullmatch(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", address):
        raise ValueError(f"--address must be HOST:PORT or auto, got {address!r}")
    try:
        if address != "auto":  # a closed port is found at once this way
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        trial = subprocess.run(
            [sys.executable, "-m", NODE, "try", address], env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=CONNECT_SECONDS,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError, OverflowError):
        raise ValueError(f"no Ray cluster answers at {address}; {ADVICE}") from None
    if trial.returncode != 0:
        raise ValueError(reason(address, trial.stdout.strip() or _last_line(trial.stderr)))


def reason(address: str, error: str) -> str:
    words = " ".join(error.split())
    if versions := re.search(r"Ray: (\S+) Python: (\S+).*Ray: (\S+) Python: (\S+)", words):
        theirs, ours = f"Ray {versions[1]} and Python {versions[2]}", f"Ray {versions[3]} and Python {versions[4]}"
        return f"the Ray cluster at {address} runs {theirs}, and this is {ours}; install the same versions"
    if "AuthenticationError" in words:
        return f"the Ray cluster at {address} requires a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
    if "Could not find any running Ray instance" in words:
        return f"no Ray runs on this machine; {ADVICE}"
    return f"cannot connect to the Ray cluster at {address}: {words}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before: dict[str, Any] = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
