"""Imitation: a rollout that a discriminator pays for, after it has learned to tell it from an expert's steps."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rl_training.algorithms import GAILConfig, GAILDiscriminator, Learner, Updater, gail_reward
from rl_training.data import RolloutBuffer
from rl_training.data.datasets.imitation import ImitationBatches, absorbing_rows, add_absorbing_rows, append_flag
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.rollout import RolloutLane
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class ImitationLane(RolloutLane):
    """The environment's own rewards never reach the learner; finished episodes alone tell them, for the log."""

    def __init__(
        self, learner: Learner, actor: Actor, buffer: RolloutBuffer, config: GAILConfig, *,
        discriminator: GAILDiscriminator, rows: ImitationBatches, compile: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(learner, actor, buffer, config)
        self.options, self.discriminator, self.rows = config, discriminator, rows
        self.updater = Updater([discriminator], compile=compile)

    def rewarded(self, rollout: Batch, result: CollectResult) -> Batch:
        """The rollout with the rewards of a discriminator that has seen it."""
        steps, dones = {name: rollout[name].flatten(0, 1) for name in ("obs", "actions")}, rollout["dones"].flatten()
        self.rows.policy = add_absorbing_rows(steps, int(dones.sum())) if self.options.absorbing_states else steps
        self.discriminator.prepare({**self.rows.policy, **self.rows.expert_rows(len(self.rows.policy["obs"]))})
        fitted = self.updater.run(self.rows, self.options.discriminator_updates)
        rewards = self._rewards(steps, dones)
        result.metrics |= {**fitted.metrics, "gail_reward_mean": rewards.mean()}
        return {**rollout, "rewards": rewards.view_as(rollout["rewards"])}

    def _rewards(self, steps: Batch, dones: Tensor) -> Tensor:
        """Of each step; a terminal one is also paid what the absorbing state pays for ever."""
        if not self.options.absorbing_states:
            return self._paid(**steps)
        forever = self._paid(**absorbing_rows(steps, 1)) * self.options.gamma / (1 - self.options.gamma)
        return self._paid(append_flag(steps["obs"]), steps["actions"]) + dones * forever

    def _paid(self, obs: Tensor, actions: Tensor) -> Tensor:
        return gail_reward(self.discriminator.logits(obs, actions), self.options.reward_form)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "discriminator": self.updater.state_dict(), "rows": self.rows.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.updater.load_state_dict(state["discriminator"])
        self.rows.load_state_dict(state["rows"])
        return super().load_state_dict(state)
