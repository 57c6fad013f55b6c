"""Policies to evaluate: their actions in every row of the data, and data that fit them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rl_training import streams
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.datasets.actions import Bounds
from rl_training.data.datasets.columns import REQUIRED
from rl_training.data.datasets.next_actions import next_actions
from rl_training.experiment.agent import Agent
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.datasets import reading_columns, with_run_time
from rl_training.experiment.ope.returns import with_estimated_returns
from rl_training.types import EnvSpec, Policy

SPACES = ("obs_shape", "obs_dtype", "action_kind", "action_low", "action_high", "action_start", "action_starts")
NAMES = ("obs_names", "action_columns", "categories")  # of tables; None for other data
UNEVEN = ("discount_steps", "discounts")  # of rows with uneven time steps
CHUNK = 16_384  # observations per forward pass of the policy


class HasAgent(Protocol):
    @property
    def agent(self) -> Agent: ...


class PolicyActions:
    def __init__(self, policy: Policy, samples: int | None, seed: int) -> None:
        if samples is not None and samples < 1:
            raise ValueError(f"action_samples must be at least 1, got {samples}")
        self.policy, self.samples = policy, samples
        self.device = next(policy.parameters()).device if isinstance(policy, nn.Module) else torch.device("cpu")
        self.generator = streams.generator(seed, "policy", device=self.device)

    @torch.no_grad()
    def at(self, obs: Tensor) -> Tensor:
        """Returns actions [rows, samples, ...] on the device of `obs`; Box actions are clipped to [-1, 1]."""
        actions = torch.cat([self._at(rows.to(self.device)).to(obs.device) for rows in obs.split(CHUNK)])
        return actions.clamp(-1, 1) if actions.is_floating_point() else actions

    def _at(self, rows: Tensor) -> Tensor:
        samples = [
            self.policy.act(rows, deterministic=self.samples is None, generator=self.generator)
            for _ in range(self.samples or 1)
        ]
        if any(sample.memory is not None for sample in samples):
            raise TypeError("a recurrent policy cannot be evaluated from single transitions; evaluate it by episodes")
        return torch.stack([sample.actions for sample in samples], 1)


def resolve(policy: Any, dataset: TransitionDataset | Path | str) -> tuple[Policy, TransitionDataset, EnvSpec]:
    """Returns the policy, the loaded data and a spec with the actions of both; raises ValueError if spaces differ."""
    agent = policy if isinstance(policy, Agent) else getattr(policy, "agent", None)
    if not isinstance(dataset, TransitionDataset):
        dataset = load_transition_dataset(dataset) if agent is None else load_dataset_for(agent, dataset)
    if agent is None:
        return policy, dataset, dataset.spec
    for name in (*SPACES, *NAMES):
        expected, value = getattr(agent.spec, name), getattr(dataset.spec, name)
        if differs(name, expected, value):
            raise ValueError(
                f"the agent's {name} is {expected}, but the dataset's is {value}; load the data with spec=agent.spec"
            )
    return agent.learner, dataset, max(agent.spec, dataset.spec, key=lambda spec: spec.action_dim)


def differs(name: str, one: Any, other: Any) -> bool:
    """Whether two values of an EnvSpec differ. Names of table columns are compared only if both are known."""
    return bool(one != other) and not (name in NAMES and None in (one, other))


def load_dataset_for(agent: Agent, source: Path | str, **reading: Any) -> TransitionDataset:
    """Loads data with the options of the agent's training data as defaults."""
    return load_dataset_like(agent.config, agent.spec, source, **reading)


def load_dataset_like(
    config: TrainConfig, spec: EnvSpec, source: Path | str, *, dataset_columns: Mapping[str, str] | None = None,
    action_range: Bounds | None = None, allow: Collection[str] = (), **table: Any,
) -> TransitionDataset:  # fmt: skip
    """Loads data with the options of a run's training data as defaults; `table` holds options of tables."""
    dataset = load_transition_dataset(
        source, spec=spec, columns={**reading_columns(config), **(dataset_columns or {})},
        action_range=action_range or config.action_range, allow=(*config.allow, *allow),
        **{**config.table.model_dump(), **table},
    )  # fmt: skip
    return with_run_time(config, dataset.for_training())


def with_policy_actions(
    dataset: TransitionDataset, policies: Sequence[PolicyActions], gamma: float
) -> TransitionDataset:
    """Adds returns-to-go, and the actions at next_obs as a column [rows, policies + 1, samples, ...].

    The last policy is the behaviour, with the actions of the data.
    """
    columns = {name: dataset.columns[name] for name in (*REQUIRED, "truncated", *UNEVEN) if name in dataset.columns}
    chosen = [actions.at(columns["next_obs"]) for actions in policies]
    logged = next_actions(dataset).unsqueeze(1).expand_as(chosen[0])
    columns["policy_next_actions"] = torch.stack([*chosen, logged], 1)
    data = TransitionDataset(columns, episode_ends=dataset.episode_ends, spec=dataset.spec)
    data.file_episodes, data.trajectories = dataset.file_episodes, dataset.trajectories
    return with_estimated_returns(data, gamma)
