"""Error messages for configs: which key is wrong, what is allowed, and the value given."""

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from rl_training.experiment.config.other_libraries import name_here, schedule_here
from rl_training.messages import close_name

Model = TypeVar("Model", bound=BaseModel)
KeyPath: TypeAlias = "tuple[str | int, ...]"
Hint: TypeAlias = "Callable[[KeyPath], str]"  # path of an unknown key -> what to append to its message
KnownKeys: TypeAlias = "Callable[[KeyPath], Mapping[str, str]]"  # section -> its keys, and how to write each

_MOST_LINES = 10
_LONGEST_WORD = 60  # longer than any key
_LONGEST_PATH = 8


class ConfigError(ValueError):
    """An invalid config; the message has one line for each error."""


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, level: int) -> str:
        # Python raises an error for integers with thousands of digits.
        return repr(x) if x.bit_length() < 256 else f"an integer of {x.bit_length()} bits"


shown = _Short().repr


def dotted(path: Sequence[str | int]) -> str:
    keys = [str(key) for key in path[:_LONGEST_PATH]]
    plain = [key if key.isprintable() and len(key) <= _LONGEST_WORD else shown(key) for key in keys]
    return ".".join([*plain, "..."] if len(path) > _LONGEST_PATH else plain)


def key_and_value(text: str, *, what: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """Splits at the first `=`; the key may be dotted."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not (equals and all(key.split("."))):
        raise ConfigError(f"{what} must be {form}, got {shown(text)}")
    return key, value


def similar_key(word: str, known: Mapping[str, str] | Sequence[str]) -> str:
    """`; did you mean key?` if a known key is similar, else nothing. A mapping has the form in which to write each."""
    close = close_name(word[:_LONGEST_WORD].replace("-", "_"), known)
    if close is None:
        return ""
    return f"; did you mean {known[close] if isinstance(known, Mapping) else close}?"


def describe(
    error: ValidationError, values: Any, known: KnownKeys, *, section: KeyPath = (), elsewhere: Hint = lambda path: ""
) -> list[str]:
    """One line for each error that pydantic found in `values`, the part of a config at `section`.

    `elsewhere` gives the hint for an unknown key that is valid in other configs.
    """
    errors: dict[KeyPath, list[Any]] = {}
    for item in error.errors(include_url=False, include_context=False):
        errors.setdefault(_path_in(values, item), []).append(item)
    # A union reports errors of a part and of the whole; those of the part are more precise.
    parents = {path[:length] for path in errors for length in range(len(path))}
    paths = [path for path in errors if path not in parents]
    lines = []
    for path in paths[:_MOST_LINES]:
        whole = section + path
        lines.append((f"{dotted(whole)}: " if whole else "") + _sentence(whole, errors[path], known, elsewhere))
    more = len(paths) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def checked(model: type[Model], values: Mapping[Any, Any], **hints: Any) -> tuple[Model | None, list[str]]:
    """Returns the model, or None and a line for each error; `hints` are arguments of `describe`."""
    try:
        return model.model_validate(dict(values)), []
    except ValidationError as error:
        return None, describe(error, values, **hints)


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Raises ConfigError for values that do not fit a model of flat keys."""
    known = {key: key for key in model.model_fields}
    found, errors = checked(model, values, known=lambda section: known)
    if found is None:
        raise ConfigError("\n".join(errors))
    return found


def _path_in(values: Any, item: Any) -> KeyPath:
    """The path of the error in `values`: pydantic's location without the names of union members."""
    path: list[str | int] = []
    for key in item["loc"]:
        if (isinstance(values, Mapping) and key in values) or (
            isinstance(values, Sequence) and isinstance(key, int) and key < len(values)
        ):
            values = values[key]
            path.append(key)
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _sentence(path: KeyPath, errors: list[Any], known: KnownKeys, elsewhere: Hint) -> str:
    # Our own validators have the most precise message among the members of a union.
    first = next((item for item in errors if item["type"] == "value_error"), errors[0])
    if first["type"] == "value_error":
        return str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        word, names = str(path[-1]), known(path[:-1])
        hint = name_here(word, names, first["input"]) or ("" if word in names else elsewhere(path))
        return "unknown key" + (hint or similar_key(word, names))
    if first["type"] == "missing":
        return "is required"
    allowed = list(dict.fromkeys(_allowed(item) for item in errors))
    others = "".join(f" or {text.removeprefix('must be ')}" for text in allowed[1:])
    hint = schedule_here(dotted(path[-1:]), first["input"])
    return f"{allowed[0]}{others}, got {shown(first['input'])}{hint}"


def _allowed(item: Any) -> str:
    if item["type"] in ("dict_type", "model_type"):
        return "must be a mapping"
    if item["type"] in ("tuple_type", "list_type"):
        return "must be a list, such as [1, 2]"
    if item["type"] in ("too_short", "string_too_short"):
        return "must not be empty"
    text, *_ = re.split(", unable to parse|, got ", str(item["msg"]))
    return text.removeprefix("Input ").replace("should", "must")
