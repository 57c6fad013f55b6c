"""Overrides of `--set` that hold for one command."""

from collections.abc import Iterable
from typing import Any

from rl_training.experiment.config.messages import ConfigError, key_and_value
from rl_training.experiment.config.train_config import TrainConfig, apply_overrides, parse_config

ENVIRONMENT = ("env_kwargs", "env_wrappers")
EVALUATION = (*ENVIRONMENT, *(name for name in TrainConfig.model_fields if name.startswith("eval_")))


def environment_config(env_id: str, assignments: Iterable[str]) -> TrainConfig:
    """Returns a config of an environment alone, with `--set` applied; raises ConfigError for keys of training."""
    given = list(assignments)
    _require_keys(given, ENVIRONMENT, "it checks an environment without training")
    return parse_config(apply_overrides({"algo": "ppo", "env_id": env_id}, given))


def evaluation_config(config: TrainConfig, assignments: Iterable[str]) -> tuple[TrainConfig, dict[str, Any]]:
    """Returns a stored config with `--set` applied, for one evaluation, and the values that were given."""
    given = list(assignments)
    _require_keys(given, EVALUATION, "the other keys belong to the training run")
    typed = apply_overrides({}, given)
    return parse_config(apply_overrides(config.model_dump(exclude_unset=True), given)), typed


def _require_keys(assignments: list[str], allowed: tuple[str, ...], reason: str) -> None:
    for assignment in assignments:
        key = key_and_value(assignment, what="an override")[0].partition(".")[0]
        if key not in allowed:
            raise ConfigError(f"--set {key}: this command sets only {', '.join(allowed)}, because {reason}")
