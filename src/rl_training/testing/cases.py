"""The smallest batches and runs of an algorithm, for its tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms import CATALOGUE, Learner
from rl_training.algorithms.core.memory import prepared_rows
from rl_training.data import RecurrentReplayBuffer
from rl_training.experiment.config.registry import check_policy
from rl_training.runtime.lanes.sequence import stored_memory
from rl_training.runtime.memory import Memory
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import Batch, EnvSpec

RUNS: dict[str, dict[str, Any]] = {
    "offline": {"dataset": {"kind": "random", "rows": 200}, "total_timesteps": 40},
    "replay": {"total_timesteps": 60},
    "sequence": {"total_timesteps": 60, "num_envs": 2},
    "rollout": {"total_timesteps": 96, "num_envs": 2},
}
SMALL_NETWORKS = {  # options that an algorithm may have
    "batch_size": 16,
    "critic_hidden_sizes": [8, 8],
    "hidden_sizes": [8, 8],
    "horizon": 3,
    "model_elites": 2,
    "model_hidden_sizes": [8],
    "model_members": 3,
    "num_critics": 4,
    "num_quantiles": 8,  # with 200 an update takes ten times as long as the rest of the run
    "policy_delay": 2,  # so that a few updates include the actor's
    "size": "tiny",
}
SHORT_RUNS = {
    "buffer_size": 45,
    "epochs": 2,
    "learning_starts": 40,
    "model_max_epochs": 2,
    "model_train_interval": 15,
    "num_steps": 8,
    "rollout_batch_size": 20,
    "rollout_interval": 10,
    "rollout_schedule": [0, 60, 1, 3],
    "train_ratio": 24,
    "updates_per_collect": 2,
    "window": 6,
}
# For replay and sequences: one before the first update, one after the replay buffer has started to overwrite.
STOPS = {"offline": (7, 27), "replay": (13, 51), "sequence": (14, 50), "rollout": (16, 80)}


def random_observations(
    spec: EnvSpec, rows: int, *lead: int, generator: torch.Generator | None = None, scale: float = 1.0
) -> Tensor:
    """Observations [*lead, rows, ...] from a standard normal times `scale`, or random pixels."""
    shape = (*lead, rows, *spec.obs_shape)
    if spec.obs_dtype == "uint8":
        return torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    return scale * torch.randn(shape, generator=generator)


@dataclass(frozen=True, eq=False)
class AlgorithmCase:
    """An algorithm with the spaces of its batches, and an environment for its runs."""

    learner: type[Learner]
    spec: EnvSpec
    env_id: str
    own_options: dict[str, Any] = field(default_factory=dict)  # override the small ones

    @property
    def kind(self) -> str:
        return self.spec.action_kind

    @property
    def stops(self) -> tuple[int, int]:
        """Two steps between the start and the end of a run."""
        return STOPS[self.learner.lane]

    @property
    def small_options(self) -> dict[str, Any]:
        return {**self.options(SMALL_NETWORKS), **self.own_options}

    def options(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Those of the wanted options that this algorithm has and sets, without widths that `network` gives."""
        network = self.own_options.get("network")
        given = set(network) if isinstance(network, dict) else set()
        fields = self.learner.config_type.model_fields.items()
        names = {name for name, option in fields if option.default is not None} - given
        return {name: value for name, value in wanted.items() if name in names}

    def config(self, **changes: Any) -> dict[str, Any]:
        """A run of less than a second with ended and truncated episodes and a full replay buffer."""
        run = {"algo": self.learner.name, "env_id": self.env_id, "env_kwargs": {"max_episode_steps": 25},
               "eval_episodes": 1, "eval_interval": 30, "checkpoint_interval": 25}  # fmt: skip
        expert = {"dataset": {"kind": "random", "rows": 100}} if self.learner.needs_expert else {}
        options = {**self.options({**SMALL_NETWORKS, **SHORT_RUNS}), **self.own_options}
        return {**run, **RUNS[self.learner.lane], **expert, "algo_kwargs": options, **changes}

    @contextmanager
    def in_catalogue(self) -> Iterator[None]:
        """Adds the algorithm to the catalogue inside the block, so that configs can name it."""
        name = self.learner.name
        before = CATALOGUE.get(name)
        CATALOGUE[name] = self.learner
        try:
            yield
        finally:
            if before is None:
                del CATALOGUE[name]
            else:
                CATALOGUE[name] = before

    def build(self, seed: int = 0, **options: Any) -> Learner:
        torch.manual_seed(seed)
        return check_policy(self.learner.build(self.spec, **{**self.small_options, **options}))

    def batch(self, learner: Learner, rows: int = 16, seed: int = 1) -> Batch:
        """Random transitions as the learner's lane provides them."""
        generator = torch.Generator().manual_seed(seed)
        obs, next_obs = random_observations(self.spec, rows, 2, generator=generator)
        actions = RandomPolicy(self.spec).act(obs, generator=generator).actions
        actions = 0.9 * actions if self.kind == "box" else actions
        rewards, dones = torch.randn(rows, generator=generator), (torch.arange(rows) % 5 == 0).float()
        batch = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs, "dones": dones}
        batch["truncated"] = torch.zeros(rows)
        shapes = {column.name: column.layout(batch)[0] for column in learner.needs}
        batch |= {name: torch.randn(rows, *shape, generator=generator) for name, shape in shapes.items()}
        if learner.lane == "sequence":
            return self._windows(learner, batch)
        if learner.lane != "rollout":
            return learner.prepare(batch)
        columns = {**batch, **self._acted(learner, batch, generator)}
        rollout = {name: column.unsqueeze(1) for name, column in columns.items()}
        return prepared_rows(learner, rollout)

    @torch.no_grad()
    def _acted(self, learner: Learner, batch: Batch, generator: torch.Generator) -> Batch:
        """Columns of acting on the transitions; a policy with memory acts on one after the other."""
        if not learner.initial_memory(1):
            return learner.act(batch["obs"], generator=generator).extras
        memory, rows = Memory(), []
        for obs, done in zip(batch["obs"].split(1), batch["dones"].split(1), strict=True):
            action = learner.act(obs, memory.rows, generator=generator)
            memory.keep(action, done)
            rows.append(action.extras)
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    def _windows(self, learner: Learner, batch: Batch) -> Batch:
        """The transitions as steps of one environment, sampled as windows."""
        latents, memory = stored_memory(learner), Memory()
        replay = RecurrentReplayBuffer(100, self.spec, window=5, latents=latents)
        for row in range(len(batch["obs"])):
            step = {name: column[row : row + 1] for name, column in batch.items()}
            memory.keep(learner.act(step["obs"], memory.rows), step["dones"])
            replay.add({**step, **{name: rows for name, rows in (memory.rows or {}).items() if name in latents}})
        return replay.sample(16)
