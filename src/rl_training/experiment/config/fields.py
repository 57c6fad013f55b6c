"""The kinds of values that configs are made of."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _whole(value: Any) -> Any:
    if isinstance(value, bool):  # which pydantic would take for 0 or 1
        raise ValueError(f"must be an integer, got {value}")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


_MOST = 10**15  # beyond it a count is a slip of the keyboard, and floats no longer hold it
Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=_MOST)]
Name = Annotated[str, Field(min_length=1)]
Location = Annotated[str, BeforeValidator(_text), Field(min_length=1)]


class Section(BaseModel):
    """A part of a config, or the whole: nothing unknown in it, and nothing changed afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
