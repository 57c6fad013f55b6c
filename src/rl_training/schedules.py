"""Schedules of learning rates, exploration rates and other options over the course of training."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Schedule(BaseModel):
    """Interpolates from `start` to `end` over the first `fraction` of training, then stays at `end`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["linear", "cosine", "constant"] = Field("linear", description="linear, cosine or constant")
    start: float | None = Field(None, description="first value; none: the value of the option itself")
    end: float = Field(0.0, description="last value")
    fraction: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="fraction of training that the change takes")

    def at(self, progress: float, default: float) -> float:
        """Returns the value at this fraction of training; `default` replaces a `start` of none."""
        start = default if self.start is None else self.start
        if self.kind == "constant":
            return start
        weight = 1.0 if progress >= self.fraction else progress / self.fraction
        if self.kind == "cosine":
            weight = (1 - math.cos(math.pi * weight)) / 2
        return (1 - weight) * start + weight * self.end
