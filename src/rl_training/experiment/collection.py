"""Collects datasets with a trained agent or with random actions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.envs.making import spec_of
from rl_training.experiment.agent import Agent, load_agent
from rl_training.experiment.trust import Trust, env_modules, require_trusted
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import Rolled, roll_episodes
from rl_training.types import EnvSpec, Policy


def collect_dataset(
    who: str, *, env_id: str | None = None, rows: int, seed: int = 0, epsilon: float = 0.0, stochastic: bool = False,
    progress: Callable[[int], None] = lambda rows: None, trust: Trust = (),
) -> Rolled:  # fmt: skip
    """Collects transitions with `random` actions or with the agent of a run, by default in its training environment."""
    policy: Policy | None = None
    env_kwargs: dict[str, Any] = {}
    if who != "random":
        agent = load_agent(Path(who), trust=trust)
        env_kwargs = agent.config.env_kwargs
        if env_id is None:
            env_id = agent.trusted_env()
        else:
            require_trusted(env_modules([], env_kwargs, agent.config.env_wrappers), trust, agent.path)
        policy = SometimesRandom(agent.learner, agent.spec, epsilon)
        _require_same_spaces(agent, env_id, env_kwargs)
    elif epsilon or stochastic:
        raise ValueError("--epsilon and --stochastic need a run; remove them for random actions")
    if env_id is None:
        raise ValueError("no environment given; add one, such as --env CartPole-v1")
    return roll_episodes(
        env_id, rows=rows, seed=seed, policy=policy, env_kwargs=env_kwargs, deterministic=not stochastic,
        progress=progress,
    )  # fmt: skip


def _require_same_spaces(agent: Agent, env_id: str | None, env_kwargs: dict[str, Any]) -> None:
    if env_id in (None, agent.config.env_id):
        return
    spec = spec_of(str(env_id), env_kwargs)
    if _spaces(spec) != _spaces(agent.spec):
        raise ValueError(f"{env_id} has {_spaces(spec)}, but the agent was trained for {_spaces(agent.spec)}")


def _spaces(spec: EnvSpec) -> str:
    actions = f"{spec.action_dim} actions" if spec.action_kind == "discrete" else f"{spec.action_dim} action dimensions"
    parts = f" ({', '.join(part.name for part in spec.obs_parts)})" if spec.obs_parts else ""
    return f"observations of shape {spec.obs_shape}{parts} and {actions}"
