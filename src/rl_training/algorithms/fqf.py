"""Fully parameterized quantile function (Yang et al., 2019, arXiv:1911.02140): the fractions are learned too."""

import math
from collections.abc import Mapping

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.ops import select_action
from rl_training.algorithms.dqn import RowLosses, network_noise
from rl_training.algorithms.qr_dqn import QRDQNAlgorithm, QuantileConfig
from rl_training.models import FQFModel, ProposedQuantiles
from rl_training.types import ParameterGroup

COLLAPSED = 0.5  # warn below this fraction of the maximum entropy


class FQFConfig(QuantileConfig):
    num_quantiles: int = Field(32, ge=2, description="fractions proposed per observation")
    num_cosines: PositiveInt = Field(64, description="cosine features of a fraction")
    fraction_learning_rate: PositiveFloat = Field(2.5e-9, description="learning rate of the fraction proposal network")
    entropy_coefficient: float = Field(1e-3, ge=0, description="weight of the entropy of the proposed fractions")


def fraction_gradient(inner: Tensor, quantile_hats: Tensor) -> Tensor:
    """Gradient of the 1-Wasserstein distance by each inner tau: |F(tau_i) - F(hat_i-1)| - |F(tau_i) - F(hat_i)|."""
    # `inner` [..., n - 1] are the quantiles at the taus, `quantile_hats` [..., n] those at their midpoints. For an
    # increasing F this is the paper's 2 F(tau_i) - F(hat_i) - F(hat_i-1); it also holds where F decreases.
    return (inner - quantile_hats[..., :-1]).abs() - (inner - quantile_hats[..., 1:]).abs()


class FQFAlgorithm(QRDQNAlgorithm):
    name = "fqf"
    config_type = FQFConfig
    model_type = FQFModel

    def predict(self, obs: Tensor) -> tuple[ProposedQuantiles, Tensor]:
        return self.model.q.with_inner(obs, network_noise(self.model.q, obs))

    def row_losses(self, prediction: tuple[ProposedQuantiles, Tensor], target: Tensor, actions: Tensor) -> RowLosses:
        """Quantile Huber loss, plus sum of fraction_gradient * tau, minus entropy_coefficient * entropy."""
        quantiles, inner = prediction
        losses = super().row_losses(quantiles, target, actions)
        inner, hats = (select_action(each, actions) for each in (inner, quantiles.quantile_hats.detach()))
        terms = {
            "fraction_loss": (fraction_gradient(inner, hats) * quantiles.taus[:, 1:-1]).sum(-1),
            "entropy_loss": -self.config.entropy_coefficient * quantiles.entropy,
        }
        entropy = quantiles.entropy.mean() / math.log(quantiles.tau_hats.shape[-1])
        return losses._replace(terms={**losses.terms, **terms}, metrics={"fraction_entropy": entropy})

    def parameter_groups(self) -> list[ParameterGroup]:
        # The paper uses RMSProp; Adam's steps are also about as large as the learning rate.
        rate, proposal = self.config.fraction_learning_rate, ("model.q.proposal.",)
        return [ParameterGroup(rate, proposal, rate="fraction_learning_rate"), *super().parameter_groups()]

    def warnings(self, metrics: Mapping[str, float | None]) -> list[str]:
        entropy = metrics.get("fraction_entropy")
        if entropy is None or entropy >= COLLAPSED:
            return []
        fix = "Lower fraction_learning_rate or raise entropy_coefficient"
        return [f"the proposed fractions have collapsed (entropy {entropy:.2f} of the maximum). {fix}"]
