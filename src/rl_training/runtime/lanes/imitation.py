"""Imitation lane: on-policy rollouts whose rewards come from a discriminator fitted against an expert's dataset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from rl_training import streams
from rl_training.algorithms import AlgorithmConfig, GAILConfig, GAILDiscriminator, Learner, Updater, gail_reward
from rl_training.data import RolloutBuffer
from rl_training.data.datasets.imitation import ImitationBatches, absorbing_rows, add_absorbing_rows, append_flag
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.captured_acting import new_actor
from rl_training.runtime.lanes.context import LaneContext
from rl_training.runtime.lanes.rollout import RolloutLane, new_rollout_buffer
from rl_training.runtime.state import CollectResult
from rl_training.types import Batch


class ImitationLane(RolloutLane):
    """The environment's rewards are logged with finished episodes and never reach the learner."""

    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (GAILConfig,)
    needs_expert: ClassVar[bool] = True
    config: GAILConfig

    def __init__(
        self, learner: Learner, actor: Actor, buffer: RolloutBuffer, config: GAILConfig, *,
        discriminator: GAILDiscriminator, rows: ImitationBatches, compile: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(learner, actor, buffer, config)
        self.discriminator, self.rows = discriminator, rows
        self.updater = Updater([discriminator], compile=compile)

    @classmethod
    def build(cls, context: LaneContext) -> ImitationLane:
        actor, buffer = new_actor(context), new_rollout_buffer(context)
        experts, options = context.dataset, context.options
        if experts is None:
            raise ValueError("imitation needs an expert's dataset")
        columns, spec = {name: experts.columns[name] for name in ("obs", "actions")}, experts.spec
        if options.absorbing_states:  # thinned datasets keep every terminal state, so each counts 1 / dataset_stride
            columns = add_absorbing_rows(columns, experts.terminals, weight=1 / context.dataset_stride)
            spec = replace(spec, obs_shape=columns["obs"].shape[1:])
        rows = ImitationBatches({name: column.to(actor.device) for name, column in columns.items()})
        rows.seed(streams.derive(context.seed, "experts"))
        with streams.fork(context.seed, "discriminator"):
            discriminator = GAILDiscriminator.build(spec, options.discriminator()).to(actor.device)
        return cls(
            context.learner, actor, buffer, options, discriminator=discriminator, rows=rows, compile=context.compile
        )

    def rewarded(self, rollout: Batch, result: CollectResult) -> Batch:
        """Fits the discriminator on the rollout, then returns the rollout with the discriminator's rewards."""
        steps, dones = {name: rollout[name].flatten(0, 1) for name in ("obs", "actions")}, rollout["dones"].flatten()
        self.rows.policy = add_absorbing_rows(steps, int(dones.sum())) if self.config.absorbing_states else steps
        self.discriminator.prepare({**self.rows.policy, **self.rows.expert_rows(len(self.rows.policy["obs"]))})
        fitted = self.updater.run(self.rows, self.config.discriminator_updates)
        rewards = self._rewards(steps, dones)
        result.metrics |= {**fitted.metrics, "gail_reward_mean": rewards.mean()}
        return {**rollout, "rewards": rewards.view_as(rollout["rewards"])}

    def _rewards(self, steps: Batch, dones: Tensor) -> Tensor:
        """Discriminator rewards; a terminal step adds gamma / (1 - gamma) * r(absorbing state)."""
        if not self.config.absorbing_states:
            return self._reward(**steps)
        absorbed = self._reward(**absorbing_rows(steps, 1)) * self.config.gamma / (1 - self.config.gamma)
        return self._reward(append_flag(steps["obs"]), steps["actions"]) + dones * absorbed

    def _reward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return gail_reward(self.discriminator.logits(obs, actions), self.config.reward_form)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "discriminator": self.updater.state_dict(), "rows": self.rows.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        self.updater.load_state_dict(state["discriminator"])
        self.updater.reset_rates()  # the options decide: a new run may start here with another rate
        self.rows.load_state_dict(state["rows"])
        return super().load_state_dict(state)
