"""Specifications of the algorithms, by name: lane, spaces, summary and options.

A name is one of the catalogue or of an installed package (see `plugins`), or `module:Class` of the user's own.
"""

import sys
from typing import Any, NamedTuple

import torch

from rl_training.algorithms import CATALOGUE, AlgorithmConfig, Learner
from rl_training.experiment.config.plugins import load_plugin, plugins
from rl_training.messages import did_you_mean, print_warning
from rl_training.models import Normalizer
from rl_training.modules import load_object
from rl_training.types import ACTION_SPACES, EnvSpec, ParameterGroup


class AlgorithmSpec(NamedTuple):
    name: str
    lane: str
    action_kinds: tuple[str, ...]
    takes_pixels: bool  # for at least one of its kinds of actions
    summary: str  # the first sentence of the algorithm's file
    learner: type[Learner]
    config_type: type[AlgorithmConfig]

    @property
    def needs_data(self) -> bool:
        """Whether a run needs a dataset, to learn from or as expert data."""
        return self.lane == "offline" or self.learner.needs_expert


def algorithm_names() -> list[str]:
    """Names of the catalogue and of installed packages, which are not imported."""
    return sorted({*CATALOGUE, *plugins()})


def list_algorithm_specs() -> list[AlgorithmSpec]:
    """All algorithms. One of an installed package that cannot be imported is left out with a warning."""
    found = []
    for name in algorithm_names():
        try:
            found.append(get_algorithm_spec(name))
        except (ImportError, TypeError) as error:
            print_warning(f"{error}; it is left out")
    return found


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    """The algorithm of that name in the catalogue or an installed package, or of `module:Class`."""
    learner = CATALOGUE[name] if name in CATALOGUE else check_learner(_outside(name), name)
    documented = learner.__doc__ if name not in CATALOGUE and "__doc__" in vars(learner) else None
    summary = (documented or sys.modules[learner.__module__].__doc__ or "").strip().partition("\n")[0]
    takes_pixels = any(learner.for_actions(kind).takes_pixels for kind in learner.action_kinds)
    return AlgorithmSpec(name, learner.lane, learner.action_kinds, takes_pixels, summary, learner, learner.config_type)


def _outside(name: str) -> Any:
    """Imports an algorithm that is not in the catalogue."""
    if ":" in name:
        return load_object(name, "algo")
    if name in plugins():
        return load_plugin(name)
    hint = did_you_mean(name, algorithm_names()) or f"; there are {', '.join(algorithm_names())}"
    raise ValueError(f"no algorithm {name!r}{hint}")


def check_learner(learner: Any, name: str = "") -> type[Learner]:
    """Returns the class if it is a complete algorithm; otherwise raises a TypeError that names what is missing."""
    name = name or getattr(learner, "__name__", repr(learner))
    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise TypeError(f"algo {name} must be a subclass of rl_training.algorithms.Learner, got {learner!r}")
    needed = ("name", "lane", "config_type", "model_type", "action_kinds")
    missing = [member for member in needed if not hasattr(learner, member)]
    if missing:
        raise TypeError(f"algo {name} needs the class attribute {missing[0]}; docs/guide/new_algorithm.md lists all")
    if not (isinstance(learner.config_type, type) and issubclass(learner.config_type, AlgorithmConfig)):
        raise TypeError(f"algo {name}: config_type must be a subclass of AlgorithmConfig, got {learner.config_type!r}")
    if not hasattr(learner.model_type, "build"):
        raise TypeError(f"algo {name}: model_type needs a class method build(spec, config)")
    _check_lane(learner, name)
    unknown = [kind for kind in learner.action_kinds if kind not in ACTION_SPACES]
    if unknown or isinstance(learner.action_kinds, str):
        raise TypeError(
            f"algo {name}: action_kinds must be a tuple of {', '.join(ACTION_SPACES)}, got {learner.action_kinds!r}"
        )
    return learner


def _check_lane(learner: type[Learner], name: str) -> None:
    """Raises a TypeError if the lane is unknown, or needs another base class or an expert's dataset."""
    from rl_training.runtime.lanes import LANES  # imports environments

    chosen = learner.lane_class or learner.lane
    if chosen not in LANES:
        raise TypeError(f"algo {name}: lane must be one of {', '.join(LANES)}, got {chosen!r}")
    lane = LANES[chosen]
    if not issubclass(learner, lane.learner_type):
        raise TypeError(f"algo {name} must be a subclass of {lane.learner_type.__name__} for the lane {chosen}")
    if not all(issubclass(learner.config_type, base) for base in lane.config_types):
        bases = " and ".join(base.__name__ for base in lane.config_types)
        raise TypeError(
            f"algo {name}: config_type of the lane {chosen} must be a subclass of {bases}, got "
            f"{learner.config_type.__name__}"
        )
    if lane.needs_expert and not learner.needs_expert:
        raise TypeError(f"algo {name}: the lane {chosen} needs an expert's dataset; set needs_expert = True")


def build_learner(name: str, spec: EnvSpec, config: AlgorithmConfig) -> Learner:
    """Builds a learner for these spaces. The error for unsuitable spaces lists algorithms that accept them."""
    algorithm = get_algorithm_spec(name)
    try:
        algorithm.learner.check_spec(spec)
    except TypeError as error:
        raise TypeError(f"{error}; {_alternatives(spec, algorithm.lane)}") from error
    return check_policy(algorithm.learner.build(spec, config))


def check_policy(learner: Learner) -> Learner:
    """Returns the learner if it can act; otherwise raises a TypeError that names what to define."""
    acts_by_default = getattr(learner.act, "__func__", None) is Learner.act  # `setup` may set another one
    if acts_by_default and not hasattr(learner.model, "actor"):
        name, model = type(learner).__name__, type(learner.model).__name__
        raise TypeError(
            f"{name} has no policy: define act(obs, memory=None, *, deterministic=False, generator=None) in {name}, or "
            f"set a part `actor` in {model}, whose distribution the default act samples; docs/extend.md shows one"
        )
    if wrong := [group for group in learner.parameter_groups() if not isinstance(group, ParameterGroup)]:
        name = f"{type(learner).__name__}.parameter_groups"
        raise TypeError(f"{name} must return rl_training.types.ParameterGroup objects, got {wrong[0]!r}")
    _check_normalizer(learner)
    return learner


def _check_normalizer(learner: Learner) -> None:
    """Raises a ValueError if the policy of an algorithm of the user's own ignores the option `normalize_obs`."""
    if learner.is_built_in or not isinstance(learner.normalizer, Normalizer):
        return
    calls: list[Any] = []
    hook = learner.normalizer.register_forward_hook(lambda *each: calls.append(each))
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        learner.act(torch.zeros(2, *learner.model.obs_shape), deterministic=True)
    hook.remove()
    if not calls:
        raise ValueError(
            f"normalize_obs is true, but {type(learner).__name__} ignores it: call self.normalizer(obs) in act and "
            "self.normalized(batch) in losses, or leave it out"
        )


def _alternatives(spec: EnvSpec, lane: str) -> str:
    """Names the offline or online algorithms, as `lane`, that accept these spaces."""
    fitting = []
    for other in list_algorithm_specs():
        try:
            other.learner.check_spec(spec)
        except TypeError:
            continue
        fitting.append(other)
    offline = lane == "offline"
    alike = [each for each in fitting if (each.lane == "offline") == offline and not each.learner.needs_expert]
    if fitting and not alike:
        return f"no {'offline' if offline else 'online'} algorithm accepts it"
    names = ", ".join(other.name for other in alike)
    numbers = "; without an environment, action_range (--action-range) reads integers as Box actions"
    fix = numbers if offline and spec.action_kind == "multi_discrete" else ""
    return f"these accept it: {names}{fix}" if names else "no algorithm accepts it"
