"""The option `precision` for whole losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rl_training.types import Batch, Loss

LossMethod = Callable[..., Loss]


def in_precision(loss: LossMethod) -> LossMethod:
    """Decorates a loss method: its matrix products have the learner's `precision`.

    With bfloat16, hidden layers and the outputs of policies are rounded to it. Values have float32's precision.
    """

    @wraps(loss)
    def method(learner: Any, batch: Batch, *others: Any) -> Loss:
        with learner.precision(batch):
            return loss(learner, batch, *others)

    return method
