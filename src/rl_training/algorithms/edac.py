"""Ensemble-diversified actor critic (An et al., 2021, arXiv:2110.01548): offline SAC with many diverse critics."""

from typing import Any, ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import OfflineTDConfig
from rl_training.algorithms.core.ops import ensemble_squared_error
from rl_training.algorithms.core.temperature import TemperatureConfig
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.models import MLPEDACModel
from rl_training.models.products import in_population
from rl_training.models.values import Critic
from rl_training.types import Batch, Loss, Metrics


class EDACConfig(TemperatureConfig, OfflineTDConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256, 256), description="widths of the hidden layers")
    num_critics: int = Field(10, ge=2, description="number of critics, whose minimum is the value of an action")
    eta: NonNegativeFloat = Field(1.0, description="weight of the gradient diversity loss; 0: SAC-N")
    actor_learning_rate: PositiveFloat | None = Field(
        None, description="learning rate of the actor and the temperature; none: learning_rate"
    )


def values_and_gradients(critic: Critic, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Q(s, a) of every critic [critics, rows], and its gradients by the actions [critics, rows, dims]."""

    def total(each: Tensor) -> tuple[Tensor, Tensor]:
        q = critic.each(obs, each)
        return q.sum(), q

    copied = actions.expand(critic.copies, *actions.shape)
    if in_population(actions) or torch.compiler.is_dynamo_compiling():
        gradients, q = torch.func.grad(total, has_aux=True)(copied)
        return q, gradients
    copied = copied.detach().requires_grad_()
    summed, q = total(copied)
    return q, torch.autograd.grad(summed, copied, create_graph=True)[0]  # unlike `torch.func`, it can be traced


def gradient_diversity_loss(gradients: Tensor) -> Tensor:
    """Mean over rows of the sum of <g_i, g_j> over pairs i != j, divided by critics - 1; g_i are unit gradients."""
    unit = gradients / (gradients.norm(dim=-1, keepdim=True) + 1e-10)
    pairs = unit.sum(0).square().sum(-1) - unit.square().sum((0, -1))
    return pairs.mean() / (len(unit) - 1)


class EDACAlgorithm(SACAlgorithm):
    """SAC with the minimum of all critics in the TD target and in the policy loss."""

    name = "edac"
    lane = "offline"
    config_type = EDACConfig
    model_type: ClassVar[Any] = MLPEDACModel
    actor_parameters = ("model.actor.", "log_alpha")

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        """Critic loss: mean of (Q(s, a) - target)^2, summed over the critics, plus eta * gradient diversity loss."""
        eta, inputs, target_q = self.config.eta, (batch["obs"], batch["actions"]), self.target_q(batch, alpha)
        diversity: Metrics = {}
        if eta > 0:
            q, gradients = values_and_gradients(self.model.critic, *inputs)
            diversity = {"diversity_loss": eta * gradient_diversity_loss(gradients)}
        else:  # SAC-N needs no second derivatives
            q = self.model.critic(*inputs)
        terms = {"critic_loss": ensemble_squared_error(q, target_q), **diversity}
        return Loss(terms, {"target_q_mean": target_q.mean(), "q_std": q.detach().std(0).mean()})
