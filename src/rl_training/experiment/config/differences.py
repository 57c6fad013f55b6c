"""Differences between two configs, and the keys that may change after a run has started."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from rl_training.experiment.config.train_config import TrainConfig

# Keys that change neither updates nor environment steps; `threads` changes the last bits, which resume reports.
MAY_CHANGE = (
    "callbacks", "checkpoint_interval", "env_workers", "eval_episodes", "eval_interval", "eval_max_steps",
    "eval_stochastic", "keep_checkpoints", "log", "log_interval", "max_env_restarts",
    "record_video_interval", "threads",
)  # fmt: skip
# Those of them that affect what is learned, through the code of a callback, or the score.
EFFECTIVE = ("callbacks", "eval_max_steps", "eval_stochastic")
EARLIER_DEFAULTS = {"env_workers": (0, "auto")}  # both values give the same results

Differences: TypeAlias = dict[str, tuple[Any, Any]]  # both values, by dotted key


def config_differences(a: TrainConfig, b: TrainConfig) -> Differences:
    """Dotted keys with different values, and both values; ignores output_dir, and the options of two algorithms."""
    ignored = {"output_dir"} if a.algo == b.algo else {"output_dir", "algo_kwargs"}
    return _differences(a.model_dump(mode="json", exclude=ignored), b.model_dump(mode="json", exclude=ignored))


def named_differences(changed: Differences) -> str:
    return "; ".join(f"{key}: {there!r} there, {here!r} here" for key, (there, here) in changed.items())


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> Differences:
    found: Differences = {}
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if isinstance(first, dict) and isinstance(second, dict):
            found |= _differences(first, second, f"{prefix}{key}.")
        elif first != second and not (first in (same := EARLIER_DEFAULTS.get(prefix + key, ())) and second in same):
            found[prefix + key] = (first, second)
    return found
