"""How a mistake in a config is put into words: where it is, what is allowed, what came."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import ValidationError

KeyPath: TypeAlias = "tuple[str | int, ...]"
KnownKeys: TypeAlias = "Callable[[KeyPath], Mapping[str, str]]"  # section -> its keys, each with how to write it

_MOST_LINES = 10  # of a file that is no config at all, the first mistakes are enough
_LONGEST_WORD = 60  # no key of ours is nearly as long
_LONGEST_PATH = 8


class ConfigError(ValueError):
    """A config that cannot be used; the message has a line for each mistake."""


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print thousands of digits.
        return repr(x) if x.bit_length() < 256 else f"an integer of {x.bit_length()} bits"


shown = _Short().repr


def written(path: Sequence[str | int]) -> str:
    """The dotted form of a path of keys, on one line whatever the keys are."""
    keys = [str(key) for key in path[:_LONGEST_PATH]]
    plain = [key if key.isprintable() and len(key) <= _LONGEST_WORD else shown(key) for key in keys]
    return ".".join([*plain, "..."] if len(path) > _LONGEST_PATH else plain)


def key_and_value(text: str, *, what: str, form: str = "KEY=VALUE") -> tuple[str, str]:
    """The two sides of the first `=`; a key may have parts, key.part."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not (equals and all(key.split("."))):
        raise ConfigError(f"{what} must be {form}, got {shown(text)}")
    return key, value


def edit_distance(a: str, b: str) -> int:
    """Letters to insert, delete or replace to turn one word into the other."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        previous, row = row, [i]
        for j, other in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (letter != other)))
    return row[-1]


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant: two letters away at most, but not all of them, or else much alike."""
    if len(word) > _LONGEST_WORD:
        return None
    names = list(candidates)
    plain = word.lower().replace("-", "_")
    distances = {name: edit_distance(plain, name.lower()) for name in names if abs(len(name) - len(plain)) <= 2}
    best = min(distances, key=distances.__getitem__, default=None)
    if best is not None and distances[best] <= 2 and distances[best] < len(plain):
        return best
    return next(iter(difflib.get_close_matches(plain, names, n=1)), None)


def did_you_mean(word: str, known: Mapping[str, str]) -> str:
    """The end of a sentence about an unknown word; empty when nothing is near."""
    name = nearest(word, known)
    return "" if name is None else f"; did you mean {known[name]}?"


def describe(error: ValidationError, values: Any, known: KnownKeys, *, section: KeyPath = ()) -> list[str]:
    """A line for each mistake that pydantic found in `values`, the part of a config at `section`."""
    mistakes: dict[KeyPath, list[Any]] = {}
    for item in error.errors(include_url=False, include_context=False):
        mistakes.setdefault(_path_in(values, item), []).append(item)
    # An error in a part says more than the one of the whole, where a union reports both.
    parents = {path[:length] for path in mistakes for length in range(len(path))}
    paths = [path for path in mistakes if path not in parents]
    lines = [_line(section + path, mistakes[path], known) for path in paths[:_MOST_LINES]]
    more = len(paths) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def _path_in(values: Any, item: Any) -> KeyPath:
    """Where in `values` the error is: its location without the names of a union's members."""
    path: list[str | int] = []
    for key in item["loc"]:
        if (isinstance(values, Mapping) and key in values) or (
            isinstance(values, Sequence) and isinstance(key, int) and key < len(values)
        ):
            values = values[key]
            path.append(key)
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _line(path: KeyPath, mistakes: list[Any], known: KnownKeys) -> str:
    sentence = _sentence(path, mistakes, known)
    return f"{written(path)}: {sentence}" if path else sentence


def _sentence(path: KeyPath, mistakes: list[Any], known: KnownKeys) -> str:
    # A check of ours says what came, and more than the other members of a union do.
    first = next((item for item in mistakes if item["type"] == "value_error"), mistakes[0])
    if first["type"] == "value_error":
        return str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return "unknown key" + did_you_mean(str(path[-1]), known(path[:-1]))
    if first["type"] == "missing":
        return "is required"
    allowed = list(dict.fromkeys(_allowed(item) for item in mistakes))
    others = "".join(f" or {text.removeprefix('must be ')}" for text in allowed[1:])
    return f"{allowed[0]}{others}, got {shown(first['input'])}"


def _allowed(item: Any) -> str:
    if item["type"] in ("dict_type", "model_type"):
        return "must be a mapping"
    if item["type"] in ("tuple_type", "list_type"):
        return "must be a list, such as [1, 2]"
    text, _, _ = str(item["msg"]).partition(", unable to parse")
    return text.removeprefix("Input ").replace("should", "must")
