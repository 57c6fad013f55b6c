"""The option `precision` for whole losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rl_training.types import Batch, Loss

LossMethod = Callable[..., Loss]


def in_precision(loss: LossMethod) -> LossMethod:
    """Decorates a loss method: its matrix products have the learner's `precision`.

    With bfloat16, hidden layers compute in it. Values, policies and everything behind them are float32.
    """

    @wraps(loss)
    def method(learner: Any, batch: Batch, *others: Any) -> Loss:
        with learner.precision(batch):
            return loss(learner, batch, *others)

    return method
