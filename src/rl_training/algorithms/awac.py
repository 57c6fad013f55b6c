"""Advantage weighted actor-critic (Nair et al., 2020, arXiv:2006.09359): cloning weighted by advantages of a critic."""

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import ActorRateConfig, OfflineTDConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import squared_td_loss, weighted_cloning_loss
from rl_training.models import MLPAWACModel
from rl_training.types import Batch, Loss


class AWACConfig(ActorRateConfig, OfflineTDConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    awac_lambda: PositiveFloat = Field(1.0, description="temperature: weight = exp(advantage / awac_lambda)")
    max_advantage_weight: PositiveFloat = Field(100.0, description="upper bound of that weight")
    normalize_obs: bool = Field(True, description="standardise observations by the dataset's mean and std")


def awac_policy_loss(advantage: Tensor, log_prob: Tensor, config: AWACConfig) -> Loss:
    """Policy loss: mean of -min(exp(A / awac_lambda), max_advantage_weight) * log pi(a|s)."""
    return weighted_cloning_loss(advantage / config.awac_lambda, log_prob, config.max_advantage_weight)


class AWACAlgorithm(Learner):
    name = "awac"
    lane = "offline"
    config_type = AWACConfig
    model_type = MLPAWACModel
    action_kinds = ("box",)
    targets = ("critic",)
    parts = ("critics", "policy")
    actor_parameters = ("model.actor.",)

    def phases(self, update: int) -> tuple[str, ...]:
        """The policy follows the updated critics, as in CORL."""
        return ("critics", "policy", "targets")

    def critics(self, batch: Batch) -> Loss:
        batch = self.normalized(batch)
        return squared_td_loss(self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch))

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target: r + gamma * (1 - done) * min target Q(s', a') with a' from pi(s')."""
        next_obs = batch["next_obs"]
        next_q = self.target["critic"](next_obs, self.model.sample(next_obs)).amin(0)
        return self.td_target(batch, next_q)

    def policy(self, batch: Batch) -> Loss:
        obs, actions = self.normalizer(batch["obs"]), batch["actions"]
        return awac_policy_loss(self.advantage(obs, actions), self.model.actor(obs).log_prob(actions), self.config)

    @torch.no_grad()
    def advantage(self, obs: Tensor, actions: Tensor) -> Tensor:
        """A(s, a) = min Q(s, a) - min Q(s, b) with one b from pi(s)."""
        return self.model.critic(obs, actions).amin(0) - self.model.critic(obs, self.model.sample(obs)).amin(0)
