"""A function without side effects on the host, called as a CUDA graph."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

WARM_UPS = 3  # eager calls before the capture; they are used like any other
Result = TypeVar("Result")


class CapturedCall(Generic[Result]):
    """Calls `function`. On a GPU, calls after the first three replay a CUDA graph, which overwrites the last result.

    A function that waits for the device cannot be captured, so it stays a call.
    """

    def __init__(self, function: Callable[[], Result], generator: torch.Generator) -> None:
        self._function, self._generator = function, generator
        self._calls = 0
        self._result: Result
        self._graph: torch.cuda.CUDAGraph | None = None
        on_gpu = generator.device.type == "cuda"
        self._stream = torch.cuda.Stream(generator.device) if on_gpu else None

    def __call__(self) -> Result:
        if self._graph is not None:
            self._graph.replay()
        elif self._stream is None:
            self._result = self._function()
        elif self._calls < WARM_UPS:
            self._warm_up(self._stream)
        else:
            self._capture(self._stream)
        return self._result

    def _warm_up(self, stream: torch.cuda.Stream) -> None:
        """Runs on the capture stream, so that lazy allocations happen before the capture."""
        state = self._generator.get_state()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            try:
                with errors_when_waiting(enabled=self._calls > 0):  # the first call may load kernels
                    self._result = self._function()
            except RuntimeError:
                self._stream = None
                self._generator.set_state(state)
        torch.cuda.current_stream().wait_stream(stream)
        self._calls += 1
        if self._stream is None:
            self._result = self._function()

    def _capture(self, stream: torch.cuda.Stream) -> None:
        gc.collect()  # freeing an older graph during the capture would invalidate it
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph, stream=stream):
            self._result = self._function()
        self._graph = graph
        graph.replay()


@contextmanager
def errors_when_waiting(*, enabled: bool) -> Iterator[None]:
    """Makes operations that wait for the device raise RuntimeError."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error" if enabled else before)
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():  # PyTorch warns that some operations are not detected
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)
