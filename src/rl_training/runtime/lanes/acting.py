"""A policy in its environments: what the replay and rollout lanes share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.data import RecurrentReplayBuffer, ReplayBuffer
from rl_training.envs.pool import Transition
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.memory import Memory
from rl_training.runtime.state import CollectResult, DivergedError
from rl_training.types import Action, Batch, Policy


class Actor:
    """Acts in a pool of environments and hands out rows; noise comes from a generator of its own."""

    def __init__(
        self, policy: Policy, pool: Any, generator: torch.Generator, device: torch.device, *,
        noise: ActionNoise | None = None,
    ) -> None:  # fmt: skip
        self.policy, self.pool, self.generator, self.device = policy, pool, generator, device
        self.obs, self.memory = self._tensor(pool.reset()), Memory()
        lead = self.obs.shape[: self.obs.dim() - len(pool.spec.obs_shape)]
        self.noise, self.drift = noise, torch.zeros(*lead, pool.spec.action_dim, device=device)

    @torch.no_grad()
    def choose(self, policy: Policy | None = None, *, deterministic: bool = False) -> Action:
        """The actions of this policy, or of the actor's own and its noise, by what it sees and remembers."""
        chooser = policy or self.policy
        action = chooser.act(self.obs, self.memory.rows, deterministic=deterministic, generator=self.generator)
        if policy is not None or self.noise is None:
            return action
        self.drift = self.noise.follow(self.drift, self.generator)
        return action._replace(actions=(action.actions + self.drift).clamp(-1, 1))

    def step(self, action: Action) -> tuple[Batch, Transition]:
        """Take these actions everywhere; the rows end at their own episode's last observation, never beyond."""
        chosen = action.actions.cpu()
        if chosen.is_floating_point() and not chosen.isfinite().all():
            raise DivergedError("the policy's actions are not finite; its learning rate is likely too high")
        moved = self.pool.step(chosen.numpy())
        row = {
            "obs": self.obs,
            "actions": action.actions,
            "rewards": self._tensor(moved.rewards),
            "next_obs": self._tensor(moved.next_obs),
            "dones": self._number(moved.terminated),
            "truncated": self._number(moved.truncated),
            **action.extras,
        }
        self.obs = row["next_obs"] if moved.obs is moved.next_obs else self._tensor(moved.obs)
        self.memory.keep(action, row["dones"] + row["truncated"])
        if self.noise is not None and moved.finished:
            self.drift[self._tensor(moved.terminated | moved.truncated)] = 0
        return row, moved

    def state_dict(self) -> dict[str, Any]:
        drift = {} if self.noise is None else {"drift": self.drift}
        remembered = {} if self.memory.rows is None else {"memory": self.memory.rows}
        return {"obs": self.obs, "envs": self.pool.snapshot(), **drift, **self.noise_state(), **remembered}

    def noise_state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_noise_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"].cpu())

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        reasons = self.pool.restore(state["envs"])
        self.obs = self._tensor(self.pool.obs) if reasons else state["obs"].to(self.device)
        if self.noise is not None:
            self.drift = torch.zeros_like(self.drift) if reasons else state["drift"].to(self.device)
        self.memory = Memory()
        if "memory" in state and not reasons:
            self.memory.rows = {name: column.to(self.device) for name, column in state["memory"].items()}
        self.load_noise_state(state)
        return reasons

    def _tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array).to(self.device, copy=True)  # the pool may reuse its arrays

    def _number(self, flags: Any) -> Tensor:
        return torch.as_tensor(flags).to(self.device, torch.float32)


class ActingLane:
    """A lane whose time is the environments'."""

    replay: ReplayBuffer | RecurrentReplayBuffer | None = None

    def __init__(self, actor: Actor, source: Any) -> None:
        self.actor, self.source, self.step = actor, source, 0

    def act(self, policy: Policy | None, result: CollectResult) -> Batch:
        """One step of every environment; `result` takes what it has to tell."""
        row, moved = self.actor.step(self.actor.choose(policy))
        self.step += self.actor.pool.num_envs
        result.num_env_steps += self.actor.pool.num_envs
        result.episodes += moved.finished
        return row

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "actor": self.actor.state_dict(), "source": self.source.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.step = state["step"]
        self.source.load_state_dict(state["source"])
        return self.actor.load_state_dict(state["actor"])
