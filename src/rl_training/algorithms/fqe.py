"""Fitted Q evaluation (Le, Voloshin & Yue, 2019, arXiv:1903.08738): the value of a fixed policy from offline data."""

from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from rl_training.algorithms.core.config import AlgorithmConfig, Rate
from rl_training.algorithms.core.learner import Column, Learner
from rl_training.models import FQEModel, Normalizer
from rl_training.types import Batch, Loss


class FQEConfig(AlgorithmConfig):
    gamma: Annotated[float, Field(ge=0, lt=1)] = Field(0.99, description="discount factor; below 1")
    hidden_sizes: tuple[PositiveInt, ...] = Field((64, 64), description="widths of the hidden layers")
    learning_rate: PositiveFloat = Field(1e-3, description="learning rate")
    batch_size: PositiveInt = Field(64, description="transitions per update")
    tau: Rate = Field(0.1, description="Polyak coefficient of the target network")


def fqe_loss(q: Tensor, target_q: Tensor) -> Loss:
    """Critic loss: mean of (Q(s, a) - target)^2."""
    return Loss({"loss": (q - target_q).square().mean()}, {"q_value_mean": q.mean(), "target_q_mean": target_q.mean()})


class FQE(Learner):
    """Learns Q of a fixed policy. It is not in the catalogue because it has no policy of its own."""

    name = "fqe"
    lane = "offline"
    config_type = FQEConfig
    model_type = FQEModel
    action_kinds = ("box", "discrete", "multi_discrete")
    takes_pixels = True
    targets = ("q",)
    # [rows, samples, ...], the policy's actions at next_obs: one, or several samples whose Q-values are averaged.
    needs = (Column("policy_next_actions", like="actions"),)
    value_mean: Tensor
    value_std: Tensor
    lowest: Tensor
    highest: Tensor

    def setup(self) -> None:
        initial = {"value_mean": 0.0, "value_std": 1.0, "lowest": -torch.inf, "highest": torch.inf}
        for name, value in initial.items():
            self.register_buffer(name, torch.tensor(value))

    def new_normalizer(self) -> nn.Module:
        return nn.Identity() if self.model.obs_dtype == "uint8" else Normalizer(self.model.obs_shape)

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Fits the scale of Q to the returns-to-go and bounds Q by min r / (1 - gamma) and max r / (1 - gamma).

        With a discount per row, gamma is the largest of them.
        """
        # The scale speeds up learning. The bounds keep extrapolation errors from growing through bootstrapping.
        rewards, returns = batch["rewards"], batch["returns_to_go"]
        std = returns.std(unbiased=False)
        self.value_mean.copy_(returns.mean())
        self.value_std.copy_(torch.where(std > 0, std, 1.0))
        rewards = torch.cat([rewards, rewards[:1] * (1 - batch["dones"].amax())])  # after a termination rewards are 0
        gamma = batch["discounts"].amax().clamp(max=1 - 1e-6) if "discounts" in batch else self.config.gamma
        self.lowest.copy_(rewards.min() / (1 - gamma))
        self.highest.copy_(rewards.max() / (1 - gamma))
        return super().prepare(batch)

    def loss(self, batch: Batch) -> Loss:
        q = self.values(self.model.q, batch["obs"], batch["actions"].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target_q = self.td_targets(self.target["q"], batch)
        return fqe_loss(q, target_q.clamp(self.lowest, self.highest))

    def td_targets(self, network: nn.Module, batch: Batch) -> Tensor:
        """TD targets: r + discount * (1 - done) * Q(s', pi(s'))."""
        next_q = self.values(network, batch["next_obs"], batch["policy_next_actions"]).mean(1)
        return self.td_target(batch, next_q)

    def td_errors(self, batch: Batch) -> Tensor:
        """TD errors of Q itself, without target network and bounds."""
        q = self.values(self.model.q, batch["obs"], batch["actions"].unsqueeze(1)).squeeze(1)
        return self.td_targets(self.model.q, batch) - q

    def values(self, network: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
        """Q-values of actions [rows, samples, ...] in units of the rewards."""
        return self.value_mean + self.value_std * network(self.normalizer(obs), actions)
