"""TD3+BC (Fujimoto & Gu, 2021, arXiv:2106.06860): offline TD3 with a behaviour cloning term."""

from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.config import ActionNoiseConfig, OfflineTDConfig, PrecisionConfig
from rl_training.algorithms.td3 import DelayedActorConfig, TD3Algorithm
from rl_training.types import Batch, Loss


class TD3BCConfig(DelayedActorConfig, ActionNoiseConfig, PrecisionConfig, OfflineTDConfig):
    alpha: PositiveFloat = Field(2.5, description="weight of Q against behaviour cloning: lambda = alpha / mean |Q|")
    normalize_obs: bool = Field(True, description="standardise observations by the dataset's mean and std")


def td3_bc_loss(q: Tensor, policy_actions: Tensor, actions: Tensor, alpha: float) -> Loss:
    """Policy loss: -lambda * mean Q(s, pi(s)) + mean (pi(s) - a)^2, with lambda = alpha / mean |Q|."""
    q_weight = alpha / q.abs().mean().detach()
    terms = {"actor_loss": -q_weight * q.mean(), "bc_loss": (policy_actions - actions).square().mean()}
    return Loss(terms, {"q_weight": q_weight})


class TD3BCAlgorithm(TD3Algorithm):
    name = "td3_bc"
    lane = "offline"
    config_type = TD3BCConfig

    def policy_loss(self, q: Tensor, policy_actions: Tensor, batch: Batch) -> Loss:
        return td3_bc_loss(q, policy_actions, batch["actions"], self.config.alpha)
