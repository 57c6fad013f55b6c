"""Extreme Q-learning (Garg et al., 2023): IQL whose value is the soft maximum that Gumbel regression finds."""

from __future__ import annotations

from pydantic import Field, PositiveFloat
from torch import Tensor
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.ops import expectile_loss
from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig, IQLPredictions, iql_loss
from rl_training.models import MLPXQLModel
from rl_training.types import Batch, Loss

HUBER_DELTA = 20.0  # of the critics' error, as in the released code


class XQLConfig(IQLConfig):
    loss_temperature: PositiveFloat = Field(2.0, description="large: the value nears the mean action, small: the best")
    max_value_diff_exp: PositiveFloat = Field(7.0, description="errors above so many temperatures pull no further")
    vanilla_value_loss: bool = Field(False, description="fit the value by IQL's expectile instead")


def gumbel_rescale_loss(error: Tensor, temperature: float, max_exp: float) -> Tensor:
    """Mean of exp(z) - z - 1 for z = error / temperature, divided by the batch's largest exp(z) (at least 1 / e).

    z is clipped above alone, as in the released offline code; the paper's listing clips both sides.
    """
    z = (error / temperature).clamp(max=max_exp)
    largest = z.amax().clamp(min=-1).detach()
    return ((z - largest).exp() - (z + 1) * (-largest).exp()).mean()


def xql_value_loss(advantage: Tensor, config: XQLConfig) -> Tensor:
    if config.vanilla_value_loss:
        return expectile_loss(advantage, config.expectile)
    return gumbel_rescale_loss(advantage, config.loss_temperature, config.max_value_diff_exp)


def xql_loss(seen: IQLPredictions, config: XQLConfig) -> Loss:
    errors = huber_loss(seen.q, seen.target_q.expand_as(seen.q), reduction="none", delta=HUBER_DELTA)
    terms = {"critic_loss": errors.mean(-1).sum(), "value_loss": xql_value_loss(seen.advantage, config)}
    return iql_loss(seen, config).plus(terms)


class XQLAlgorithm(IQLAlgorithm):
    name = "xql"
    config_type = XQLConfig
    model_type = MLPXQLModel

    def loss(self, batch: Batch) -> Loss:
        return xql_loss(self.predict_batch(batch), self.config)
