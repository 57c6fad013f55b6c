"""Field types of configs."""

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from rl_training.modules import is_local, module_in


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would read it as 0 or 1
        raise ValueError(f"must be an integer, got {value}")
    return value


def _count_or_auto(value: Any) -> Any:
    if value is None or value == "auto":
        return "auto"
    if (isinstance(value, str) and value.isdecimal()) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"must be auto or an integer of at least 0, got {value!r}")
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, PurePath) else value


_MOST = 10**15  # floats hold every integer up to here exactly
Count = Annotated[int, BeforeValidator(_not_bool), Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, BeforeValidator(_not_bool), Field(ge=0, le=_MOST)]
CountOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_count_or_auto)]
Name = Annotated[str, Field(min_length=1)]
Location = Annotated[str, BeforeValidator(_text), Field(min_length=1)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


def _trackers(value: Any) -> Any:
    return [] if value is None or value == "none" else _listed(value)


def _imports(key: str) -> BeforeValidator:
    """Validates a list of `module:Name` and `{key: module:Name, option: value}`; a single one is a list of one."""

    def validated(value: Any) -> Any:
        listed = value if value is None or isinstance(value, list | tuple) else [value]
        for each in listed or ():
            name = each.get(key) if isinstance(each, dict) else each
            if module_in(name) is None and not is_local(name):
                hint = "" if key != "callback" or isinstance(name, str) else "; pass objects to learn(callbacks=[…])"
                raise ValueError(f"must be module:Name or {{{key}: module:Name, option: value}}, got {each!r}{hint}")
        return listed

    return BeforeValidator(validated)


Import = str | dict[str, JsonValue]
Wrappers = Annotated[tuple[Import, ...], _imports("wrapper")]
CallbackNames = Annotated[tuple[Import, ...], _imports("callback")]
Trackers = Annotated[tuple[Literal["tensorboard", "wandb", "mlflow"], ...], BeforeValidator(_trackers)]


class Section(BaseModel):
    """A config or a part of one: immutable, without unknown keys, NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EarlyStopping(Section):
    """Stops after `patience` evaluations without an improvement of the best return by more than `min_delta`."""

    patience: Count = Field(description="evaluations without improvement before the run stops")
    min_delta: Annotated[float, Field(ge=0)] = Field(0.0, description="smallest improvement of the return that counts")
