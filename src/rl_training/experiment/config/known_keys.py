"""Keys of a config and options of algorithms, for the hints in error messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from rl_training.experiment.config.dataset_config import (
    DatasetRecipe,
    FilePart,
    RecipePart,
    RewardTransform,
    TableOptions,
)
from rl_training.experiment.config.fields import EarlyStopping
from rl_training.experiment.config.messages import KeyPath
from rl_training.schedules import Schedule

if TYPE_CHECKING:
    from rl_training.algorithms import AlgorithmConfig

# Sections whose keys are suggested outside them too. Keys of the others, such as `kind` and `clip`, are too general.
SUGGESTED: dict[str, type[BaseModel]] = {"early_stopping": EarlyStopping, "table": TableOptions}
_MOST_NAMES = 5


def known_keys(own: Sequence[str], options: type[AlgorithmConfig] | None, section: KeyPath) -> dict[str, str]:
    """Every key that is valid in this section, and how to write it there; `own` are the keys of the top level."""
    nested: dict[str | int, tuple[type[BaseModel], ...]] = {
        "dataset": (DatasetRecipe,) if len(section) == 1 else (RecipePart, FilePart),
        "rewards": (RewardTransform,),
        "table": (TableOptions,),
        "early_stopping": (EarlyStopping,),
        "schedules": (Schedule,),
    }
    if section and section[0] in nested:
        return {key: key for model in nested[section[0]] for key in model.model_fields}
    inner = {key: f"{name}.{key}" for name, model in SUGGESTED.items() for key in model.model_fields}
    network = _network_keys(options)
    of_algorithm = [] if options is None else list(options.model_fields)
    if not section:
        return {**inner, **network, **{key: f"algo_kwargs.{key}" for key in of_algorithm}, **{key: key for key in own}}
    above = {key: f"{name}, at the top level" for key, name in {**inner, **{key: key for key in own}}.items()}
    return {**network, **above, **{key: key for key in of_algorithm}}


def _network_keys(options: type[AlgorithmConfig] | None) -> dict[str, str]:
    """Keys of the option `network` that the algorithm can use."""
    if options is None or "network" not in options.model_fields:
        return {}
    from rl_training.algorithms.core.network import SIMBA_OPTIONS, NetworkConfig  # imports torch

    unused = options.unused_network_keys()
    keys = {key: f"network.{key}" for key in NetworkConfig.model_fields if key not in unused}
    kinds = f"with network.kind={' or '.join(options.takes_simba)}"
    return {key: f"{name}, {kinds}" if key in SIMBA_OPTIONS else name for key, name in keys.items()}


def algorithms_with(path: KeyPath, *, algo: str) -> str:
    """A hint to append to an error message if other algorithms have the option at `path`; otherwise empty."""
    from rl_training.experiment.config import registry  # imports torch

    section, option = path[:-1], path[-1]
    have = [spec for spec in registry.list_algorithm_specs() if option in spec.config_type.model_fields]
    if section not in ((), ("algo_kwargs",)) or not have:
        return ""
    lane = registry.get_algorithm_spec(algo).lane
    names = [spec.name for spec in have if spec.lane == lane] or [spec.name for spec in have]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"; {algo} does not have it. Leave it out, or use one that does: {', '.join(names[:_MOST_NAMES])}{more}"
