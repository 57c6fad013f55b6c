"""A policy acting in its environments, and the base class of the lanes that act."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.core.flat import FlatFunction
from rl_training.envs.pools.pool import Transition
from rl_training.models.encoders import Statistics
from rl_training.models.replay_reward_scale import ReturnStatistics
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.lanes.context import TrainingLane
from rl_training.runtime.memory import Memory
from rl_training.runtime.state import CollectResult, checked_action, finite_actions
from rl_training.types import Action, Batch, Policy


class Actor:
    """Steps a pool of environments with a policy; exploration has its own random generator."""

    def __init__(
        self, policy: Policy, pool: Any, generator: torch.Generator, device: torch.device, *,
        noise: ActionNoise | None = None, statistics: Statistics | None = None,
        returns: ReturnStatistics | None = None,
    ) -> None:  # fmt: skip
        self.statistics = statistics  # of all observations that the policy acts on, for its normalisation
        self.policy, self.pool, self.generator, self.device = policy, pool, generator, device
        self.obs, self.memory = self._tensor(pool.reset()), Memory()
        lead = self.obs.shape[: self.obs.dim() - len(pool.spec.obs_shape)]
        self.noise, self.noise_value = noise, torch.zeros(*lead, pool.spec.action_dim, device=device)
        self.returns, self.return_sums = returns, torch.zeros(lead, device=device)
        traceable = device.type == "cpu" and getattr(policy, "is_traceable", False)
        self.flat = FlatFunction(self._act, generator=generator) if traceable else None

    @torch.no_grad()
    def choose(self, policy: Policy | None = None, *, deterministic: bool = False) -> Action:
        """Returns the actions of `policy`, or of the actor's own policy with exploration noise added."""
        return self.act_on(self.obs, policy, deterministic=deterministic)

    def act_on(self, obs: Tensor, policy: Policy | None, *, deterministic: bool) -> Action:
        if self.statistics is not None:
            self.statistics.merge(obs)
        if self.flat is not None and policy is None:
            action: Action = self.flat({"obs": obs, **(self.memory.rows or {})}, deterministic)
        else:
            acting = policy or self.policy
            found = acting.act(obs, self.memory.rows, deterministic=deterministic, generator=self.generator)
            action = checked_action(found, acting)
        if policy is not None or self.noise is None:
            return action
        self.noise_value.copy_(self.noise.next(self.noise_value, self.generator))
        return action._replace(actions=(action.actions + self.noise_value).clamp(-1, 1))

    def _act(self, batch: Batch, deterministic: bool) -> Action:
        memory = {name: rows for name, rows in batch.items() if name != "obs"}
        return self.policy.act(batch["obs"], memory or None, deterministic=deterministic, generator=self.generator)

    def actions_on_host(self, action: Action) -> Any:
        return finite_actions(action.actions).numpy()

    def step(self, action: Action, meanwhile: Callable[[], None] | None = None) -> tuple[Batch, Transition]:
        """Steps every environment. A transition's `next_obs` is its episode's own, never that of the next episode.

        Calls `meanwhile` while environments in worker processes step.
        """
        self.pool.begin_step(action.actions if self.pool.on_device else self.actions_on_host(action))
        if meanwhile is not None:
            meanwhile()
        stepped = self.pool.end_step()
        batch = {
            "obs": self.obs,
            "actions": action.actions,
            "rewards": self._tensor(stepped.rewards),
            "next_obs": self._tensor(stepped.next_obs),
            "dones": self._number(stepped.terminated),
            "truncated": self._number(stepped.truncated),
            **action.extras,
        }
        self.obs = batch["next_obs"] if stepped.obs is stepped.next_obs else self._tensor(stepped.obs)
        self.memory.keep(action, None if action.memory is None else batch["dones"] + batch["truncated"])
        self.reset_noise(stepped)
        self.add_returns(batch)
        return batch, stepped

    def add_returns(self, batch: Batch) -> None:
        if self.returns is not None:
            self.returns.add(self.return_sums, batch["rewards"], batch["dones"] + batch["truncated"])  # never both

    def reset_noise(self, stepped: Transition) -> None:
        """Resets the exploration noise of environments whose episode ended."""
        if self.noise is not None and (stepped.finished or self.pool.on_device):
            self.noise_value.masked_fill_(self._tensor(stepped.terminated | stepped.truncated).unsqueeze(-1), 0)

    def state_dict(self, member: int | None = None) -> dict[str, Any]:
        """State of all environments, or of those of one member; all members share the generator."""
        pool, rows = self._part(member)
        noise = {} if self.noise is None else {"drift": self.noise_value[rows]}
        returns = {} if self.returns is None else {"returns": self.return_sums[rows]}
        memory = {} if self.memory.rows is None else {"memory": self.memory.rows}
        own = {"obs": self.obs[rows], "envs": pool.snapshot(), "generator": self.generator.get_state()}
        return {**own, **noise, **returns, **memory}

    def load_state_dict(self, state: dict[str, Any], member: int | None = None) -> list[str]:
        pool, rows = self._part(member)
        reasons: list[str] = pool.restore(state["envs"])
        self.keep_obs(pool.obs if reasons else state["obs"], member)
        if self.noise is not None:
            self.noise_value[rows] = 0 if reasons else state["drift"]
        if self.returns is not None:
            self.return_sums[rows] = 0 if reasons else state["returns"]
        self.memory = Memory()
        if "memory" in state and not reasons:
            self.memory.rows = {name: column.to(self.device) for name, column in state["memory"].items()}
        self.generator.set_state(state["generator"].cpu())
        return reasons

    def _part(self, member: int | None) -> tuple[Any, Any]:
        """Environments of one member, or all, and the index of their rows."""
        return (self.pool, slice(None)) if member is None else (self.pool.pools[member], member)

    def keep_obs(self, obs: Any, member: int | None = None) -> None:
        """Sets the observations to act on next, of all environments or of one member's."""
        if member is None:
            self.obs = self._tensor(obs)
        else:
            self.obs[member] = torch.as_tensor(obs)

    def _tensor(self, array: Any) -> Tensor:
        """Copies the array, because the pool may reuse it."""
        if isinstance(array, np.ndarray) and self.device.type == "cpu":
            return torch.from_numpy(array.copy())
        return torch.as_tensor(array).to(self.device, copy=True)

    def _number(self, flags: Any) -> Tensor:
        if isinstance(flags, np.ndarray) and self.device.type == "cpu":
            return torch.from_numpy(flags.astype(np.float32))
        return torch.as_tensor(flags).to(self.device, torch.float32)


class ActingLane(TrainingLane):
    """A lane whose steps are environment steps."""

    def __init__(self, actor: Actor, source: Any) -> None:
        self.actor, self.source, self.step = actor, source, 0

    def act(self, policy: Policy | None, result: CollectResult, meanwhile: Callable[[], None] | None = None) -> Batch:
        """Steps every environment once and appends finished episodes to `result`."""
        batch, stepped = self.actor.step(self.actor.choose(policy), meanwhile)
        self.count(stepped, result)
        return batch

    def count(self, stepped: Transition, result: CollectResult) -> None:
        self.step += self.actor.pool.num_envs
        result.num_env_steps += self.actor.pool.num_envs
        result.episodes += stepped.finished

    def is_overdue(self) -> bool:
        """Whether a collect of several steps must end after this one, because a stop was requested."""
        return time.monotonic() > self.stop_by

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "actor": self.actor.state_dict(), "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        reasons = self.actor.load_state_dict(state["actor"])
        if reasons and self.replay is not None:  # the environments were reset, so the stored episodes end here
            self.replay.mark_boundary()
        return reasons
