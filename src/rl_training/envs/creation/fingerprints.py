"""Fingerprints of environments given in Python, to notice that a run is continued in another one."""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

import gymnasium as gym

CODE = "its code"
FIXED, OTHER = "values", "hints"  # an error or a warning is raised if they differ


def of_function(create: Any, options: Mapping[str, Any]) -> dict[str, dict[str, str]] | None:
    """Returns hashes of the numbers and strings that a function and its options use, and of its code as a hint.

    Lists, dicts and paths are hints as well: the function may change them, such as a counter of its calls.
    """
    if not isinstance(create, FunctionType):
        return None
    code = list(_codes(create.__code__))
    used = [each for part in code for each in dis.get_instructions(part)]
    stored = {each.argval for each in used if each.opname in ("STORE_GLOBAL", "STORE_DEREF")}
    read = {each.argval for each in used if each.opname == "LOAD_GLOBAL"}
    values = {name: create.__globals__[name] for name in read & create.__globals__.keys()}
    for name, cell in zip(create.__code__.co_freevars, create.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is empty
            values[name] = cell.cell_contents
    values |= {each.name: each.default for each in inspect.signature(create).parameters.values()}
    values = {name: value for name, value in {**values, **options}.items() if name not in stored}
    version = f"{sys.version_info.major}.{sys.version_info.minor}"  # decides what the code is compiled to
    return _hashed(values, {f"{CODE} in Python {version}": [_described(part) for part in code]})


def of_object(env: gym.Env[Any, Any]) -> dict[str, dict[str, str]] | None:
    """Returns hints: hashes of the attributes that are named like arguments of the constructor."""
    core, attributes = env.unwrapped, getattr(env.unwrapped, "__dict__", {})
    try:
        names = inspect.signature(type(core)).parameters
    except (TypeError, ValueError):
        return None
    return _hashed({}, {name: attributes[name] for name in names if name in attributes})


def changes(began: Mapping[str, Any] | None, now: Mapping[str, Any] | None, kind: str) -> list[str]:
    """Names what differs between two fingerprints; what only one of them has is not compared."""
    before, after = ((each or {}).get(kind, {}) for each in (began, now))
    return [name.partition(" in ")[0] for name in sorted(before) if after.get(name, before[name]) != before[name]]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _described(code: CodeType) -> list[Any]:
    constants = [
        sorted(map(repr, each)) if isinstance(each, frozenset) else repr(each)  # sets have no order
        for each in code.co_consts
        if not isinstance(each, CodeType)
    ]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _hashed(values: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns hashes of what JSON can hold, because run.json is no place for the passwords of a script."""
    found: dict[str, dict[str, str]] = {FIXED: {}, OTHER: {}}
    for name, value in [*values.items(), *hints.items()]:
        is_path = isinstance(value, str) and ("/" in value or "\\" in value)  # such as a log with the time in its name
        is_fixed = name in values and isinstance(value, bool | int | float | str | None) and not is_path
        try:
            text = json.dumps(value, sort_keys=True)
        except (TypeError, ValueError):
            continue
        found[FIXED if is_fixed else OTHER][name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found
