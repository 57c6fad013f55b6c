"""Differences between two configs."""

from collections.abc import Mapping
from typing import Any

from rl_training.experiment.config.train_config import TrainConfig

EARLIER_DEFAULTS = {"env_workers": (0, "auto")}  # both values give the same results


def config_differences(a: TrainConfig, b: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted keys with different values, and both values; ignores output_dir, and the options of two algorithms."""
    ignored = {"output_dir"} if a.algo == b.algo else {"output_dir", "algo_kwargs"}
    return _differences(a.model_dump(mode="json", exclude=ignored), b.model_dump(mode="json", exclude=ignored))


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            found |= _differences(first, second, f"{prefix}{key}.")
        elif first != second and not (first in (same := EARLIER_DEFAULTS.get(prefix + key, ())) and second in same):
            found[prefix + key] = (first, second)
    return found
