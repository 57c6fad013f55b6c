"""Parts of a config file that are moved before it is validated: `network`, and `device_envs`.

`device_envs` holds settings that replace others if `env_backend` is device.
"""

from collections.abc import Mapping
from typing import Any

from rl_training.experiment.config.messages import ConfigError

SECTION = "device_envs"
KEYS = ("total_timesteps", "num_envs", "eval_interval", "schedules", "algo_kwargs")


def with_backend(values: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the section into the config if its backend is device, and leaves it out otherwise."""
    rest = {key: value for key, value in values.items() if key != SECTION}
    section = values.get(SECTION)
    if section is None or rest.get("env_backend") != "device":
        return rest
    if not isinstance(section, Mapping) or not section.keys() <= set(KEYS):
        raise ConfigError(f"{SECTION}: must be a mapping with {', '.join(KEYS)}, got {section!r}")
    return {**rest, **{key: _merged(rest.get(key), value) for key, value in section.items()}}


def _merged(old: Any, new: Any) -> Any:
    return {**old, **new} if isinstance(old, Mapping) and isinstance(new, Mapping) else new


def lift_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Moves `network` from the top level to the options of the algorithm."""
    options = values.get("algo_kwargs")
    if "network" not in values or not isinstance(options or {}, Mapping):
        return dict(values)
    rest = {key: value for key, value in values.items() if key != "network"}
    if (options or {}).get("network") is not None:
        raise ConfigError("network is given twice, at the top level and in algo_kwargs; remove one")
    return {**rest, "algo_kwargs": {**(options or {}), "network": values["network"]}}
