"""Extreme Q-learning (Garg et al., 2023, arXiv:2301.02328): IQL with Gumbel regression for the state value."""

from pydantic import Field, PositiveFloat
from torch import Tensor
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.ops import expectile_loss, weighted_cloning_loss
from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig, IQLPredictions
from rl_training.models import MLPXQLModel
from rl_training.types import Batch, Loss

HUBER_DELTA = 20.0  # threshold of the critics' Huber loss, as in the authors' code


class XQLConfig(IQLConfig):
    loss_temperature: PositiveFloat = Field(
        2.0, description="Gumbel temperature; large: V nears the mean of Q over actions, small: the maximum"
    )
    max_value_diff_exp: PositiveFloat = Field(7.0, description="upper bound of (Q - V) / loss_temperature")
    vanilla_value_loss: bool = Field(False, description="use IQL's expectile loss for V")


def gumbel_rescale_loss(error: Tensor, temperature: float, max_exp: float) -> Tensor:
    """Gumbel loss: mean of exp(z) - z - 1 for z = min(error / temperature, max_exp), divided by max(exp(z), 1 / e)."""
    # z is clipped from above only, as in the authors' offline code; the paper's listing clips both sides.
    z = (error / temperature).clamp(max=max_exp)
    largest = z.amax().clamp(min=-1).detach()
    return ((z - largest).exp() - (z + 1) * (-largest).exp()).mean()


def xql_value_loss(advantage: Tensor, config: XQLConfig) -> Tensor:
    """Gumbel loss of min target Q(s, a) - V(s), or IQL's expectile loss with `vanilla_value_loss`."""
    if config.vanilla_value_loss:
        return expectile_loss(advantage, config.expectile)
    return gumbel_rescale_loss(advantage, config.loss_temperature, config.max_value_diff_exp)


def xql_loss(predictions: IQLPredictions, config: XQLConfig) -> Loss:
    """IQL's loss with the Gumbel value loss and, for the critics, the Huber loss of Q(s, a) - target."""
    q, target_q, advantage, log_prob = predictions
    return xql_critic_loss(q, target_q).joined(xql_policy_loss(advantage, log_prob, config))


def xql_critic_loss(q: Tensor, target_q: Tensor) -> Loss:
    errors = huber_loss(q, target_q.expand_as(q), reduction="none", delta=HUBER_DELTA)
    return Loss({"critic_loss": errors.mean(-1).sum()}, {"target_q_mean": target_q.mean()})


def xql_policy_loss(advantage: Tensor, log_prob: Tensor, config: XQLConfig) -> Loss:
    policy = weighted_cloning_loss(config.beta * advantage, log_prob, config.max_advantage_weight)
    return Loss({"value_loss": xql_value_loss(advantage, config)}).joined(policy)


class XQLAlgorithm(IQLAlgorithm):
    name = "xql"
    config_type = XQLConfig
    model_type = MLPXQLModel

    def critics(self, batch: Batch) -> Loss:
        return xql_critic_loss(*self.predict_q(batch))

    def policy(self, batch: Batch) -> Loss:
        return xql_policy_loss(*self.predict_policy(batch), self.config)
