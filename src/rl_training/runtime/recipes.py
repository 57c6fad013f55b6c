"""Datasets collected by a policy in an environment; the same recipe gives the same bytes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training import streams
from rl_training.data import TransitionDataset
from rl_training.data.datasets.validation import require_box_observations
from rl_training.envs.pools.pool import EnvPool
from rl_training.messages import print_warning
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import EnvSpec, Policy

ROLLING_ENVS = 8


class Rolled(NamedTuple):
    """A dataset; `whole` is False for episodes that were still running when collection ended."""

    dataset: TransitionDataset
    whole: Tensor


def roll_dataset(
    env_id: Any, *, rows: int, seed: int = 0, policy: Policy | None = None, env_kwargs: dict[str, Any] | None = None,
    deterministic: bool = False, like: EnvSpec | None = None,
) -> TransitionDataset:  # fmt: skip
    """Collects at least `rows` transitions of the policy, or of a uniform random one; `like` is the policy's spec."""
    return roll_episodes(
        env_id, rows=rows, seed=seed, policy=policy, env_kwargs=env_kwargs, deterministic=deterministic, like=like
    ).dataset


@torch.no_grad()
def roll_episodes(
    env_id: Any, *, rows: int, seed: int, policy: Policy | None, env_kwargs: dict[str, Any] | None = None,
    deterministic: bool, progress: Callable[[int], None] = lambda rows: None, like: EnvSpec | None,
) -> Rolled:  # fmt: skip
    """As `roll_dataset`; calls `progress` after each step with the number of transitions so far."""
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    width = min(ROLLING_ENVS, rows)
    with EnvPool(env_id, width, seed=streams.derive(seed, "recipe"), env_kwargs=env_kwargs, like=like) as pool:
        require_box_observations(pool.spec, env_id)
        for note in pool.notes:
            print_warning(note)
        generator = streams.generator(seed, "recipe")
        actor = Actor(policy or RandomPolicy(pool.spec), pool, generator, torch.device("cpu"))
        steps = []
        for count in range(width, rows + width, width):
            action = actor.choose(deterministic=deterministic)
            steps.append(actor.step(action._replace(extras={}))[0])
            progress(count)
        columns = {name: torch.stack([step[name] for step in steps], 1) for name in steps[0]}  # [envs, time, ...]
        ended = (columns["dones"] + columns["truncated"] > 0).flatten()
        # Episodes still running are truncated, not terminated, so their last value is bootstrapped.
        columns["truncated"][:, -1] = 1 - columns["dones"][:, -1]
        flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        dataset = TransitionDataset(flat, spec=pool.spec)
        return Rolled(dataset, ended[dataset.episode_ends])
