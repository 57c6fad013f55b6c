"""Rules for the options of every command: lists are given once, and numbers of steps may be written as 1e5."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.models import OptionInfo

from rl_training.cli import app

ONE_VALUE = {  # texts that are no lists: the last one counts, as with other programs
    "address", "compile_", "csv", "csv_dialect", "device", "env", "executor", "gpu_memory", "group", "improvement",
    "markdown", "memory", "obs", "obs_file", "one_cell", "out", "output", "plot", "profiles", "sampler", "time",
    "title", "video",
}  # fmt: skip
NO_STEPS = {
    "cpus",
    "jobs",
    "sampler_seed",
    "seed",
    "slots",
    "threads",
}  # integers that count no steps, rows or episodes


class Option(NamedTuple):
    command: tuple[str, ...]
    name: str
    type_: Any
    flag: str


def every_option(app: typer.Typer, group: tuple[str, ...] = ()) -> Iterator[Option]:
    for command in app.registered_commands:
        assert command.callback is not None
        words = (*group, command.name or command.callback.__name__)
        for name, annotation in typing.get_type_hints(command.callback, include_extras=True).items():
            base, *marks = typing.get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation,)
            for info in (mark for mark in marks if isinstance(mark, OptionInfo)):
                named = [each for each in map(str, (info.default, *(info.param_decls or ()))) if each.startswith("--")]
                yield Option(words, name, without_none(base), [*named, f"--{name.replace('_', '-')}"][0])
    for each in app.registered_groups:
        assert each.typer_instance is not None
        yield from every_option(each.typer_instance, (*group, str(each.name)))


def without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation
    (base,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
    return base


def chosen(*kinds: type, but: set[str]) -> list[Any]:
    found = [option for option in every_option(app) if option.type_ in kinds and option.name not in but]
    return [pytest.param(option, id=" ".join([*option.command, option.flag])) for option in found]


def test_options_of_all_commands_are_found():
    found = {(" ".join(option.command), option.flag) for option in every_option(app)}
    assert {("train", "--seeds"), ("bench", "--devices"), ("data split", "--test"), ("env check", "--set")} <= found


@pytest.mark.parametrize("option", chosen(str, Path, but=ONE_VALUE))
def test_a_list_that_is_given_twice_is_refused(cli, option):
    result = cli(*option.command, option.flag, "0", f"{option.flag}=1")
    assert result.exit_code == 2
    assert f"error: {option.flag} is given 2 times; give it once, " in result.stderr


@pytest.mark.parametrize("option", chosen(int, but=NO_STEPS))
def test_a_number_of_steps_may_be_written_as_1e5(cli, option):
    for text in ("1e5", "100_000"):
        assert "Invalid value" not in cli(*option.command, option.flag, text).stderr  # ends at the missing argument
    refused = cli(*option.command, option.flag, "1.5")
    assert refused.exit_code == 2
    assert f"Invalid value for '{option.flag}': '1.5' is not a whole number of at least " in refused.stderr
