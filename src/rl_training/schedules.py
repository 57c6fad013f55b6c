"""Numbers that move as training goes on: a learning rate, an exploration rate."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Schedule(BaseModel):
    """A way from `start` to `end` over the first `fraction` of training; it stays at `end` after that."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["linear", "cosine", "constant"] = Field("linear", description="linear, cosine or constant")
    start: float | None = Field(None, description="where it begins; none: at the option's own value")
    end: float = Field(0.0, description="where it ends")
    fraction: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="share of training until it is there")

    def at(self, progress: float, default: float) -> float:
        """The value when this share of training is done; `default` stands in for a start that is not given."""
        start = default if self.start is None else self.start
        if self.kind == "constant":
            return start
        way = 1.0 if progress >= self.fraction else progress / self.fraction
        if self.kind == "cosine":
            way = (1 - math.cos(math.pi * way)) / 2
        return (1 - way) * start + way * self.end
