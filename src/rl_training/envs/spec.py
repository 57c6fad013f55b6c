"""What a learner must know of an environment that only has a name so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.envs.pool import env_spec_of, make_env
from rl_training.types import EnvSpec


def spec_of(env_id: str, env_kwargs: Mapping[str, Any]) -> EnvSpec:
    env = make_env(env_id, env_kwargs)
    try:
        return env_spec_of(env)
    finally:
        env.close()
