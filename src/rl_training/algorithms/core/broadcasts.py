"""Warns if a loss of your own algorithm broadcasts values [rows, 1] with others [rows] to [rows, rows]."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rl_training.messages import print_warning
from rl_training.types import Batch, Loss

TORCH = str(Path(torch.__file__).parent)


class WatchedLoss:
    """A loss whose first call for each phase is watched."""

    def __init__(self, loss: Callable[[Batch, str], Loss], learner: Any) -> None:
        self.loss, self.learner = loss, learner
        self._seen = set[str]()

    def __call__(self, batch: Batch, phase: str) -> Loss:
        if phase in self._seen:
            return self.loss(batch, phase)
        self._seen.add(phase)
        code = getattr(getattr(type(self.learner), phase, None), "__code__", None)  # in a notebook, it has no file
        with BroadcastWatch("" if code is None else code.co_filename) as watch:
            loss = self.loss(batch, phase)
        if watch.found is not None:
            rows, line = watch.found
            print_warning(
                f"{type(self.learner).__name__}.{phase} combines values of the shapes [{rows}, 1] and [{rows}] to "
                f"[{rows}, {rows}] ({Path(watch.file).name}:{line}); if that is a mistake, use squeeze(-1) on the first"
            )
        return loss


class BroadcastWatch(TorchFunctionMode):
    """Keeps the rows and the line of the first such operation that a file calls."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.found: tuple[int, int] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.found is None and (rows := crossed_rows(args, result)) and (line := self._calling_line()):
            self.found = rows, line
        return result

    def _calling_line(self) -> int | None:
        """The line of the file that called this operation; None if another file did."""
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(TORCH):
            frame = frame.f_back
        return frame.f_lineno if frame.f_code.co_filename == self.file else None


def crossed_rows(args: Any, result: Any) -> int:
    """The number of rows if values [rows, 1] and [rows] give [rows, rows], or a loss of them; otherwise 0."""
    shapes = {tuple(each.shape) for each in args if isinstance(each, Tensor)}
    rows = next((shape[0] for shape in shapes if len(shape) == 1), 0)
    if rows < 2 or (rows, 1) not in shapes or not isinstance(result, Tensor):
        return 0
    return rows if tuple(result.shape) in ((rows, rows), ()) else 0
