"""Specifications of the algorithms, by name: lane, spaces, summary and options."""

import difflib
import sys
from typing import NamedTuple

from rl_training.algorithms import CATALOGUE, AlgorithmConfig, Learner
from rl_training.types import EnvSpec


class AlgorithmSpec(NamedTuple):
    name: str
    lane: str
    action_kinds: tuple[str, ...]
    takes_pixels: bool
    summary: str  # the first sentence of the algorithm's file
    learner: type[Learner]
    config_type: type[AlgorithmConfig]

    @property
    def needs_data(self) -> bool:
        """Whether a run needs a dataset, to learn from or as expert data."""
        return self.lane == "offline" or self.learner.needs_expert


def algorithm_names() -> list[str]:
    return sorted(CATALOGUE)


def list_algorithm_specs() -> list[AlgorithmSpec]:
    return [get_algorithm_spec(name) for name in algorithm_names()]


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    if name not in CATALOGUE:
        near = difflib.get_close_matches(name, CATALOGUE, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(algorithm_names())}"
        raise ValueError(f"no algorithm {name!r}; {hint}")
    learner = CATALOGUE[name]
    summary = (sys.modules[learner.__module__].__doc__ or "").strip().partition("\n")[0]
    return AlgorithmSpec(
        name, learner.lane, learner.action_kinds, learner.takes_pixels, summary, learner, learner.config_type
    )


def config_type(name: str) -> type[AlgorithmConfig]:
    return get_algorithm_spec(name).config_type


def build_learner(name: str, spec: EnvSpec, config: AlgorithmConfig) -> Learner:
    """Builds a learner for these spaces. The error for unsuitable spaces lists algorithms that accept them."""
    algorithm = get_algorithm_spec(name)
    try:
        return algorithm.learner.build(spec, config)
    except TypeError as error:
        raise TypeError(f"{error}; {_alternatives(spec, algorithm.lane)}") from error


def _alternatives(spec: EnvSpec, lane: str) -> str:
    """Algorithms that accept these spaces: offline or online ones as requested, or all if there is none."""
    fitting = []
    for other in list_algorithm_specs():
        try:
            other.learner.check_spec(spec)
        except TypeError:
            continue
        fitting.append(other)
    offline = lane == "offline"
    alike = [each for each in fitting if (each.lane == "offline") == offline and not each.learner.needs_expert]
    names = ", ".join(other.name for other in alike or fitting)
    return f"these accept it: {names}" if names else "no algorithm accepts it"
