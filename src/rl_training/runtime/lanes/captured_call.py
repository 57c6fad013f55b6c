"""A function that reads no value on the host, called as a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

import torch

from rl_training.algorithms.core.graphs import WARM_UPS, Result, capture, on_stream


class CapturedCall(Generic[Result]):
    """Calls `function`. On a GPU, calls after the first three replay a CUDA graph, which overwrites the last result.

    A function that waits for the device cannot be captured. With `changes`, the tensors that it changes, this is tested
    first, and such a function is always called. Without `changes`, it must not wait.
    """

    def __init__(
        self, function: Callable[[], Result], generator: torch.Generator, *,
        changes: Sequence[torch.Tensor] | None = None,
    ) -> None:  # fmt: skip
        self._function, self._generator, self._changes = function, generator, changes
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
            self._graph, self._result = capture(self._function, self._generator, self._stream)
            self._graph.replay()
        return self._result

    def _warm_up(self, stream: torch.cuda.Stream) -> None:
        """Runs on the capture stream, so that lazy allocations happen before the capture."""
        with on_stream(stream):
            waits = self._calls > 0 and self._waits()  # the first call may load kernels
            if not waits:
                self._result = self._function()
        self._calls += 1
        if waits:
            self._stream = None
            self._result = self._function()

    def _waits(self) -> bool:
        """Whether the function waits for the device, by a call without effect."""
        if self._changes is None:
            return False
        state, before = self._generator.get_state(), [tensor.clone() for tensor in self._changes]
        try:
            with errors_when_waiting():
                self._function()
        except RuntimeError:
            return True
        finally:
            self._generator.set_state(state)
            for tensor, value in zip(self._changes, before, strict=True):
                tensor.copy_(value)
        return False


@contextmanager
def errors_when_waiting() -> Iterator[None]:
    """Makes operations that wait for the device raise RuntimeError."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode("error")
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():  # PyTorch warns that some operations are not detected
        warnings.simplefilter("ignore", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)
