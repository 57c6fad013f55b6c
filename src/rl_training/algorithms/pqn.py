"""Parallelised Q-network (Gallici et al., 2024, arXiv:2407.04811): Q(lambda) on rollouts, without replay or targets."""

from typing import Any

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import BaseRolloutConfig, EpsilonGreedyConfig, Fraction
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import epsilon_greedy, select_action
from rl_training.data.replay.rollout_buffer import decayed_sums
from rl_training.models import PQNModel, valid_actions
from rl_training.schedules import Schedule
from rl_training.types import Action, Batch, Loss, ParameterGroup


class PQNConfig(EpsilonGreedyConfig, BaseRolloutConfig):
    learning_rate: PositiveFloat = Field(2.5e-4, description="learning rate")
    batch_size: PositiveInt = Field(128, description="steps per update; must divide num_steps * num_envs")
    num_steps: PositiveInt = Field(128, description="steps of every environment per rollout")
    epochs: PositiveInt = Field(4, description="epochs per rollout")
    max_grad_norm: PositiveFloat | None = Field(10.0, description="maximum norm of the gradient; none: no clipping")
    q_lambda: Fraction = Field(0.65, description="lambda of the Q(lambda) returns; 0: one-step targets")
    reward_scale: PositiveFloat = Field(1.0, description="factor of the rewards in the targets")


def q_lambda_returns(
    rewards: Tensor, next_values: Tensor, dones: Tensor, truncated: Tensor, *, gamma: float, q_lambda: float
) -> Tensor:
    """G_t = r_t + gamma * (1 - done_t) * ((1 - lambda) * max_a Q(s'_t, a) + lambda * G_t+1), over the time axis."""
    # At a truncation and at the end of the rollout there is no G_t+1, so lambda is 0 there.
    discounts, traces = gamma * (1 - dones), q_lambda * (1 - truncated)
    traces[-1] = 0
    return decayed_sums(rewards + discounts * (1 - traces) * next_values, discounts * traces)


class PQNAlgorithm(Learner):
    name = "pqn"
    lane = "rollout"
    config_type = PQNConfig
    model_type = PQNModel
    action_kinds = ("discrete",)
    takes_pixels = True
    epsilon: Tensor

    def setup(self) -> None:
        self.register_buffer("epsilon", torch.tensor(self.config.epsilon_start))

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Computes the Q(lambda) returns of a rollout [time, envs] with the network that has collected it."""
        next_values = self.model.q(batch["next_obs"].flatten(0, 1)).amax(-1).view_as(batch["rewards"])
        returns = q_lambda_returns(
            self.config.reward_scale * batch["rewards"], next_values, batch["dones"], batch["truncated"],
            gamma=self.config.gamma, q_lambda=self.config.q_lambda,
        )  # fmt: skip
        return {"obs": batch["obs"], "actions": batch["actions"], "returns": returns}

    def loss(self, batch: Batch) -> Loss:
        """Half of the mean squared error: 0.5 * mean of (Q(s, a) - G)^2."""
        values = select_action(self.model.q(batch["obs"]), batch["actions"])
        metrics = {"q_value_mean": values.mean(), "target_q_mean": batch["returns"].mean()}
        return Loss({"loss": 0.5 * (values - batch["returns"]).square().mean()}, metrics)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.learning_rate, kind="radam", max_grad_norm=self.config.max_grad_norm)]

    def schedules(self) -> dict[str, Schedule]:
        return {"epsilon": self.config.epsilon_schedule()}

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Epsilon-greedy actions; greedy if `deterministic`."""
        values = self.model.q(obs)
        if deterministic:
            return Action(values.argmax(-1))
        return Action(epsilon_greedy(values, self.epsilon, generator, *valid_actions(self.model.q, obs)))
