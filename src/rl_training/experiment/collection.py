"""Collects datasets with a trained agent or with random actions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.same_spaces import require_same_spaces
from rl_training.experiment.agent import load_agent
from rl_training.experiment.trust import Trust, env_modules, require_trusted
from rl_training.modules import approve
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import Rolled, roll_episodes
from rl_training.types import Policy


def collect_dataset(
    who: str, *, env_id: str | None = None, rows: int, seed: int = 0, epsilon: float = 0.0, stochastic: bool = False,
    progress: Callable[[int], None] = lambda rows: None, trust: Trust = (),
) -> Rolled:  # fmt: skip
    """Collects transitions with `random` actions or with the agent of a run, by default in its training environment."""
    policy: Policy | None = None
    like = None
    source = None if env_id is None else EnvFactory(env_id)
    approve(env_modules([env_id], {}))  # typed by the user
    if who != "random":
        agent = load_agent(Path(who), trust=trust)
        if source is None:
            source = agent.trusted_env()
        else:
            config = agent.config
            require_trusted(env_modules([], config.env_kwargs, config.env_wrappers), trust, agent.path)
            source = replace(source, kwargs=config.env_kwargs, wrappers=config.env_wrappers)
            require_same_spaces(agent.spec, source, guessed=config.env_id is None)
        policy, like = SometimesRandom(agent.learner, agent.spec, epsilon), agent.spec
    elif epsilon or stochastic:
        raise ValueError("--epsilon and --stochastic need a run; remove them for random actions")
    if source is None:
        raise ValueError("no environment given; add one, such as --env CartPole-v1")
    return roll_episodes(
        source, rows=rows, seed=seed, policy=policy, deterministic=not stochastic, progress=progress, like=like
    )
