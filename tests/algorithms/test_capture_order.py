"""The order of streams, captures and replays, without a GPU: CUDA is replaced by objects that record their calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_training.algorithms.core.graphs import CapturedUpdates
from rl_training.runtime.lanes.captured_call import CapturedCall

GENERATOR: Any = SimpleNamespace(device=torch.device("cuda"))
WARM_UP = ["side waits for main", "side {", "work", "}", "main waits for side"]
CAPTURE = ["new graph", "with generator", "capture on side, pool {}", "work", "}", "main waits for side", "replay"]


class FakeStream:
    def __init__(self, calls: list[str], name: str) -> None:
        self.calls, self.name = calls, name

    def wait_stream(self, other: FakeStream) -> None:
        self.calls.append(f"{self.name} waits for {other.name}")


class FakeGraph:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls
        calls.append("new graph")

    def register_generator_state(self, generator: Any) -> None:
        assert generator is GENERATOR
        self.calls.append("with generator")

    def replay(self) -> None:
        self.calls.append("replay")

    def pool(self) -> str:
        return "shared"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    main = FakeStream(calls, "main")

    @contextmanager
    def inside(line: str) -> Iterator[None]:
        calls.append(f"{line} {{")
        yield
        calls.append("}")

    fakes = {
        "Stream": lambda device: FakeStream(calls, "side"), "current_stream": lambda: main,
        "stream": lambda stream: inside(stream.name), "CUDAGraph": lambda: FakeGraph(calls),
        "graph": lambda graph, pool=None, stream=None: inside(f"capture on {stream.name}, pool {pool}"),
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return calls


def captured_with(pool: str | None) -> list[str]:
    return [line.replace("{}", f"{pool} {{") for line in CAPTURE]


def test_a_call_is_warmed_up_captured_and_replayed(calls):
    call = CapturedCall(lambda: calls.append("work"), GENERATOR)
    for _ in range(5):
        call()
    assert calls == [*WARM_UP * 3, *captured_with(None), "replay"]


class FakeUpdater:
    learner = SimpleNamespace(phases=lambda update: ("loss",), config=SimpleNamespace(batch_size=4))
    device, updates = torch.device("cuda"), 0

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def step_from(self, source: Any, phases: tuple[str, ...]) -> Any:
        self.calls.append("work")
        return SimpleNamespace(metrics={"loss": torch.tensor(float(len(self.calls)))})


def test_updates_are_warmed_up_captured_and_replayed_and_graphs_share_a_pool(calls):
    skipped: list[tuple[int, int]] = []
    source: Any = SimpleNamespace(generator=GENERATOR, position=0, skip=lambda *given: skipped.append(given))
    updater: Any = FakeUpdater(calls)
    updates = CapturedUpdates(updater)
    updates.run(source, 3)
    first = updates.run(source, 1)
    assert updates.run(source, 1) is first  # those of the graph, which a replay overwrites
    updates.run(source, 2)
    two = [line for line in captured_with("shared") for _ in range(1 + (line == "work"))]
    assert calls == [*WARM_UP * 3, *captured_with(None), "replay", *two]
    assert (updater.updates, skipped) == (7, [(1, 4)])
    assert first["loss"].item() == calls.index("new graph") + 4  # copied in the capture, after the work
