"""Environments and wrappers given to the Python interface as objects."""

from collections.abc import Sequence
from typing import Any

from rl_training.envs.creation.given import Environment, Given, given_env
from rl_training.envs.creation.wrapping import Wrapper, wrapper_list
from rl_training.experiment.agent import Agent, with_environment
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.trust import learner_modules
from rl_training.modules import approve


def parse_with_env(
    values: dict[str, Any], env: Any = None, wrappers: Sequence[Wrapper] = (), given: Given | None = None
) -> TrainConfig:
    """Parses a config whose environment and wrappers may be Python objects."""
    if env is not None or wrappers or not isinstance(values.get("env_id"), str | None):
        given = _described(env, wrappers, values)
        values = {**values, **given.values}
    approve(learner_modules(values))
    parsed = parse_config(values)
    return parsed if given is None or given.is_recorded else parsed.with_given(given)


def _described(env: Any, wrappers: Sequence[Wrapper], values: dict[str, Any]) -> Given:
    """Describes what was given: an environment, or wrappers of the environment that the config names."""
    found = values.get("env_id") if env is None else env
    if found is None:
        raise ConfigError("wrappers need an environment; set env_id")
    return given_env(
        found, [*wrapper_list(values.get("env_wrappers", ())), *wrapper_list(wrappers)], values.get("env_kwargs")
    )


def in_environment(agent: Agent, env: Environment | None, wrappers: Sequence[Wrapper] | None) -> Agent:
    """Returns the agent with another environment, whose spaces must be those that it was trained for."""
    if env is None and wrappers is None:
        return agent
    config = agent.config
    found, kwargs = (config.env_id, config.env_kwargs) if env is None else (env, {})
    if found is None:
        raise ConfigError("wrappers need an environment; give env=")
    is_function = isinstance(found, str) or callable(found)
    applied = (config.env_wrappers if is_function else ()) if wrappers is None else wrapper_list(wrappers)
    return with_environment(agent, given_env(found, applied, kwargs), own=wrappers is not None)
