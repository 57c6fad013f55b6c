"""A headless Chromium, driven by its DevTools protocol over two pipes: no port, no network, no driver to install."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Chromium reads commands from file descriptor 3 and writes answers to 4.
START = 'exec "$0" "$@" 3<&{commands} 4>&{answers}'
OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
    "--proxy-server=127.0.0.1:9",  # what a page asks from the network fails at once
)  # fmt: skip


class Browser:
    """One page of a Chromium, and the errors that it reports."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        start = START.format(commands=commands, answers=answers)
        self._process = subprocess.Popen(
            ["bash", "-c", start, program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._numbers, self._buffer, self._session = count(1), b"", None
        self.errors: list[str] = []  # exceptions, console errors and failed requests
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _next(self, seconds: float = 30.0) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], seconds)
            if not ready:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._read, 2**20)
            assert part, "Chromium has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        answer = json.loads(line)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.errors.append(json.dumps(event["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])

    def open(self, page: Path, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.resize(width, height)
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.ready()

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def ready(self) -> None:
        self.wait("document.documentElement?.dataset.ready === 'yes' && document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def picture(self, file: Path) -> Path:
        """Takes a picture of the whole page."""
        height = self.run("document.documentElement.scrollHeight")
        width = self.run("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))
        return file

    def close(self) -> None:
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._read)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    found = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()
