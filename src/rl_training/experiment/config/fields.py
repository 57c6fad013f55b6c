"""Field types of configs."""

from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would read it as 0 or 1
        raise ValueError(f"must be an integer, got {value}")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


_MOST = 10**15  # floats hold every integer up to here exactly
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, BeforeValidator(_not_bool), Field(ge=0, le=_MOST)]
Name = Annotated[str, Field(min_length=1)]
Location = Annotated[str, BeforeValidator(_text), Field(min_length=1)]


class Section(BaseModel):
    """A config or a part of one: immutable, without unknown keys, NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
