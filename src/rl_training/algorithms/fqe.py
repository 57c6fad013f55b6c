"""Fitted Q evaluation (Le, Voloshin & Yue, 2019): what a fixed policy would earn, learned from data of another."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from rl_training.algorithms.core.columns import Column
from rl_training.algorithms.core.config import AlgorithmConfig, Rate
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import bootstrapped
from rl_training.models import FQEModel, Normalizer
from rl_training.types import Batch, Loss


class FQEConfig(AlgorithmConfig):
    gamma: Annotated[float, Field(ge=0, lt=1)] = Field(0.99, description="discount of future rewards; below 1")
    hidden_sizes: tuple[PositiveInt, ...] = Field((128, 128), description="widths of the hidden layers")
    tau: Rate = Field(0.05, description="share of the way the target network moves at each update")


def fqe_loss(q: Tensor, target_q: Tensor) -> Loss:
    return Loss({"loss": (q - target_q).square().mean()}, {"q_value_mean": q.mean(), "target_q_mean": target_q.mean()})


class FQE(Learner):
    """Learns the action values of a policy whose choices come with the batch, so that updates never ask it.

    `policy_next_actions` [rows, choices, ...] holds what it would do at `next_obs`: one choice where it acts
    deterministically, else several draws, whose values are averaged. It stands in no catalogue: it has no policy.
    """

    name = "fqe"
    lane = "offline"
    config_type = FQEConfig
    model_type = FQEModel
    action_kinds = ("box", "discrete")
    takes_pixels = True
    targets = ("q",)
    needs = (Column("policy_next_actions", like="actions"),)
    value_mean: Tensor
    value_std: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        pixels = self.model.obs_dtype == "uint8"
        self.normalizer: nn.Module = nn.Identity() if pixels else Normalizer(self.model.obs_shape)
        starts = {"value_mean": 0.0, "value_std": 1.0, "lowest": -torch.inf, "highest": torch.inf}
        for name, value in starts.items():
            self.register_buffer(name, torch.tensor(value))

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Start at the level of the data's own returns, which a slow target would take long to reach.

        And keep to what can be: no policy earns more than the best reward for ever, or less than the worst. Without
        these bounds errors where data are thin feed on themselves.
        """
        rewards, returns = batch["rewards"], batch["returns_to_go"]
        spread = returns.std(unbiased=False)
        self.value_mean.copy_(returns.mean())
        self.value_std.copy_(torch.where(spread > 0, spread, 1.0))
        paid = torch.cat([rewards, rewards[:1] * (1 - batch["dones"].amax())])  # an end is followed by 0
        self.lowest.copy_(paid.min() / (1 - self.config.gamma))
        self.highest.copy_(paid.max() / (1 - self.config.gamma))
        if isinstance(self.normalizer, Normalizer):
            self.normalizer.fit(batch["obs"])
        return batch

    def loss(self, batch: Batch) -> Loss:
        q = self.values(self.model.q, batch["obs"], batch["actions"].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_q = self.values(self.target["q"], batch["next_obs"], batch["policy_next_actions"]).mean(1)
            target_q = bootstrapped(batch["rewards"], batch["dones"], next_q, self.config.gamma)
        return fqe_loss(q, target_q.clamp(self.lowest, self.highest))

    def values(self, network: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
        """Of actions [rows, choices, ...], in the units of the rewards."""
        return self.value_mean + self.value_std * network(self.normalizer(obs), actions)
