"""Numbers that move as training goes on: a learning rate, an exploration rate."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Schedule(BaseModel):
    """A way from `start` to `end` over the first `fraction` of training; it stays at `end` after that."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["linear", "cosine", "constant"] = "linear"
    start: float | None = None  # None: the value the option has without a schedule
    end: float = 0.0
    fraction: Annotated[float, Field(ge=0, le=1)] = 1.0

    def at(self, progress: float, default: float) -> float:
        """The value when this share of training is done; `default` stands in for a start that is not given."""
        start = default if self.start is None else self.start
        if self.kind == "constant":
            return start
        way = 1.0 if progress >= self.fraction else progress / self.fraction
        if self.kind == "cosine":
            way = (1 - math.cos(math.pi * way)) / 2
        return (1 - way) * start + way * self.end
