"""The search space: the config keys to tune, each with a range or a list of values, checked with the real config."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_training.experiment.config.messages import ConfigError, key_and_value, shown
from rl_training.experiment.config.train_config import TrainConfig, apply_overrides, parse_config
from rl_training.experiment.config.yaml_text import read_yaml
from rl_training.experiment.trust import modules_of
from rl_training.modules import approve

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FORMS = "KEY=LOW:HIGH, KEY=LOW:HIGH:log, KEY=LOW:HIGH:STEP or KEY=A,B,C"
BUDGET = "is the length of a run, and the longest would win; set it with --steps or --set"
MEASURE = "changes how runs are scored, so trials could not be compared; set it with --set"
NO_EFFECT = "does not change what is learned; set it with --set"
REFUSED = {
    "seed": "is what a trial repeats, and the luckiest would win; give --seeds",
    "algo": "has options of its own for every algorithm; tune each one, then use rl-training bench",
    "env_id": "has returns of its own for every environment; tune each one",
    "output_dir": "is chosen by --output",
    **dict.fromkeys(("total_timesteps", "online_steps", "max_updates", "max_epochs"), BUDGET),
    **{key: MEASURE for key in TrainConfig.model_fields if key.startswith("eval_")},
    **dict.fromkeys(
        ("device", "threads", "compile", "log", "log_interval", "checkpoint_interval", "keep_checkpoints", "callbacks",
         "record_video_interval", "env_workers", "env_backend", "max_env_restarts"),
        NO_EFFECT,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`: all of them, with steps of `step`, or sampled uniformly in their logarithm."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    is_int: bool = False

    def samples(self) -> list[Any]:
        """The values to check before the first trial."""
        return [int(self.low), int(self.high)] if self.is_int else [self.low, self.high]

    @property
    def size(self) -> float:
        """The number of different values."""
        if self.step is None and not self.is_int:
            return math.inf
        return round((self.high - self.low) / (self.step or 1)) + 1

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.is_int:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def suggestions(self) -> Sequence[Any]:
        """Every value as Optuna suggests it; the ends of a range without steps."""
        if math.isinf(self.size):
            return [self.low, self.high]
        number = int if self.is_int else float
        return [number(self.low + place * (self.step or 1)) for place in range(int(self.size))]

    def value(self, suggested: Any) -> Any:
        return suggested


@dataclass(frozen=True)
class Choices:
    """Any values of YAML. Optuna stores them as JSON text, because it takes no lists."""

    values: tuple[Any, ...]

    def samples(self) -> list[Any]:
        return list(self.values)

    @property
    def size(self) -> float:
        return len(self.values)

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.suggestions())

    def suggestions(self) -> Sequence[Any]:
        return [json.dumps(value) for value in self.values]

    def value(self, suggested: Any) -> Any:
        return json.loads(suggested)


@dataclass(frozen=True)
class SearchSpace:
    dimensions: Mapping[str, Range | Choices]

    @property
    def size(self) -> float:
        """The number of different configs."""
        return math.prod(dimension.size for dimension in self.dimensions.values())

    def distributions(self) -> dict[str, BaseDistribution]:
        return {key: dimension.distribution() for key, dimension in self.dimensions.items()}

    def suggestions(self) -> list[Sequence[Any]]:
        return [dimension.suggestions() for dimension in self.dimensions.values()]

    def params(self, suggested: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a config for what Optuna has suggested."""
        return {key: dimension.value(suggested[key]) for key, dimension in self.dimensions.items()}


def assignments(params: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE for `--set`, with the exact value."""
    return [f"{key}={json.dumps(value)}" for key, value in params.items()]


def parse_search(texts: Iterable[str]) -> SearchSpace:
    """Parses the values of `--search`; the types of ranges are those of the text until `checked`."""
    dimensions: dict[str, Range | Choices] = {}
    for text in texts:
        key, given = key_and_value(text, what="--search", form=FORMS)
        key = key.removeprefix("algo_kwargs.")
        section = key.partition(".")[0]
        if section in REFUSED:
            raise ConfigError(f"--search {key}: cannot be tuned, because {section} {REFUSED[section]}")
        for other in dimensions:
            if other == key:
                raise ConfigError(f"--search {key} is given twice; give all its values in one")
            if _contains(other, key) or _contains(key, other):
                raise ConfigError(f"--search {other} and --search {key} set the same key; give one of them")
        try:
            dimensions[key] = _dimension(given.strip())
        except ConfigError as error:
            raise ConfigError(f"--search {key}: {error}") from None
    if not dimensions:
        raise ConfigError(f"nothing to tune: give --search {FORMS}")
    return SearchSpace(dimensions)


def _contains(section: str, key: str) -> bool:
    return key.startswith(f"{section}.")


def _dimension(text: str) -> Range | Choices:
    parts = [part.strip() for part in text.split(":")]
    if not re.match(r"[\[{'\"]", text) and "," not in text and len(parts) > 1 and _number(parts[0]) is not None:
        return _range(parts)
    if not text:
        raise ConfigError(f"must be {FORMS}, got no value")
    values = read_yaml(f"[{text}]")
    distinct = {json.dumps(value, sort_keys=True) for value in values}
    if len(distinct) < len(values):
        raise ConfigError(f"must not repeat a value, got {text}")
    if len(values) < 2 and isinstance(values[0], str) and 2 <= len(parts) <= 3:
        raise ConfigError(f"the ends of a range must be numbers, got {text}; or give several values, A,B,C")
    if len(values) < 2:
        raise ConfigError(f"has one value, {text}; give several, or fix it with --set")
    return Choices(tuple(values))


def _range(parts: Sequence[str]) -> Range:
    (low, high), rest, text = map(_number, parts[:2]), parts[2:], ":".join(parts)
    if low is None or high is None or len(rest) > 1:
        raise ConfigError(f"a range must be LOW:HIGH, LOW:HIGH:log or LOW:HIGH:STEP, got {text}")
    if low >= high:
        raise ConfigError(f"LOW must be below HIGH, got {text}")
    if not rest:
        return Range(low, high)
    if rest[0] == "log":
        if low <= 0:
            raise ConfigError(f"a log range must start above 0, got {text}")
        return Range(low, high, log=True)
    step = _number(rest[0])
    if step is None or not 0 < step <= high - low:
        raise ConfigError(f"the third part must be log, or a step of at most HIGH - LOW, got {text}")
    return Range(low, low + int((high - low) / step + 1e-9) * step, step=step)


def _number(text: str) -> float | None:
    with suppress(ConfigError):
        value = read_yaml(text)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            return value
    return None


def checked(space: SearchSpace, values: Mapping[str, Any], fixed: Iterable[str]) -> SearchSpace:
    """Raises ConfigError for a value that the config refuses; ranges of integer keys become ranges of integers.

    `values` is the config before validation, and `fixed` are the keys given on the command line.
    """
    for key in fixed:
        plain = key.removeprefix("algo_kwargs.")
        for searched in space.dimensions:
            if plain == searched or _contains(searched, plain):
                option = "--dataset" if plain == "dataset" else f"--set {plain}"
                raise ConfigError(f"--search {searched} and {option} set the same key; give one of them")
    dimensions = {}
    for key, dimension in space.dimensions.items():
        for value in dimension.samples():
            if (error := _error(space, values, key, value)) is not None:
                raise ConfigError(f"--search {key}: {str(error).removeprefix('algo_kwargs.').removeprefix(f'{key}: ')}")
        dimensions[key] = _typed(space, values, key) if isinstance(dimension, Range) else dimension
    return SearchSpace(dimensions)


def _error(space: SearchSpace, values: Mapping[str, Any], key: str, value: Any) -> Exception | None:
    """Checks a value with the other keys as in the config, or else with their first or last values.

    Keys that depend on each other, such as the two ends of an interval, may be valid only together.
    """
    first = None
    for others in ({}, *({other: each.samples()[end] for other, each in space.dimensions.items()} for end in (0, -1))):
        try:
            merged(values, {**others, key: value})
            return None
        except (ConfigError, TypeError, ImportError) as error:
            first = first or error
    return first


def _typed(space: SearchSpace, values: Mapping[str, Any], key: str) -> Range:
    """The range of a key, of integers if the key takes no fractions."""
    found = space.dimensions[key]
    assert isinstance(found, Range)
    if found.low % 1 or found.high % 1 or _error(space, values, key, found.low + 0.5) is None:
        return found
    if found.step is not None and found.step % 1:
        raise ConfigError(f"--search {key}: must be an integer, so the step cannot be {found.step}")
    return replace(found, is_int=True)


def merged(values: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The config with these values; raises ConfigError if it is invalid."""
    changed = apply_overrides(values, assignments(params))
    approve(modules_of(changed))
    parse_config(changed)
    return changed


def describe_params(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown_value(value)}" for key, value in params.items())


def shown_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"  # suggested values have all digits
    if isinstance(value, str):
        return value
    return shown(value) if isinstance(value, dict) else json.dumps(value)
