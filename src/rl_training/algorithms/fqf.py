"""Fully parameterized quantile function (Yang et al., 2019): a second network learns which fractions to ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig
from rl_training.algorithms.dqn import RowLosses, of_action
from rl_training.algorithms.qr_dqn import QRDQNAlgorithm, QuantileConfig
from rl_training.models import FQFModel, ProposedQuantiles
from rl_training.types import ParameterGroup

COLLAPSED = 0.5  # share of the highest entropy below which the fractions have run together


class FQFConfig(QuantileConfig):
    num_quantiles: int = Field(32, ge=2, description="fractions proposed for each observation")
    num_cosines: PositiveInt = Field(64, description="cosines that a fraction is told to the network by")
    fraction_learning_rate: PositiveFloat = Field(2.5e-9, description="step size of the proposed fractions")
    entropy_coefficient: float = Field(1e-3, ge=0, description="weight of the entropy that keeps fractions apart")


def fraction_gradient(inner: Tensor, quantile_hats: Tensor) -> Tensor:
    """The slope by each inner tau of the 1-Wasserstein distance from a quantile function to its steps.

    `inner` [..., n - 1] are its values at the taus, `quantile_hats` [..., n] the steps between them. Where it rises,
    this is the paper's 2 F(tau_i) - F(hat_i) - F(hat_i-1); a network's may fall, and its slope is still this one.
    """
    return (inner - quantile_hats[..., :-1]).abs() - (inner - quantile_hats[..., 1:]).abs()


class FQFAlgorithm(QRDQNAlgorithm):
    name = "fqf"
    config_type: ClassVar[type[AlgorithmConfig]] = FQFConfig
    model_type = FQFModel

    def predict(self, obs: Tensor) -> tuple[ProposedQuantiles, Tensor]:
        seen: tuple[ProposedQuantiles, Tensor] = self.model.q.with_inner(obs, self.noise(self.model.q, obs))
        return seen

    def compare(self, seen: tuple[ProposedQuantiles, Tensor], target: Tensor, actions: Tensor) -> RowLosses:
        quantiles, inner = seen
        found = super().compare(quantiles, target, actions)
        gradient = fraction_gradient(*(of_action(each, actions) for each in (inner, quantiles.quantile_hats.detach())))
        terms = {
            "fraction_loss": (gradient * quantiles.taus[:, 1:-1]).sum(-1),
            "entropy_loss": -self.config.entropy_coefficient * quantiles.entropy,
        }
        share = quantiles.entropy.mean() / math.log(quantiles.tau_hats.shape[-1])
        return found._replace(terms={**found.terms, **terms}, metrics={"fraction_entropy": share})

    def parameter_groups(self) -> list[ParameterGroup]:
        # RMSProp in the paper; Adam, too, moves a weight by about its rate at each step, whatever the gradient's size.
        rate, proposal = self.config.fraction_learning_rate, ("model.q.proposal.",)
        return [ParameterGroup(rate, proposal, rate="fraction_learning_rate"), *super().parameter_groups()]

    def warnings(self, metrics: Mapping[str, float | None]) -> list[str]:
        entropy = metrics.get("fraction_entropy")
        if entropy is None or entropy >= COLLAPSED:
            return []
        fix = "lower fraction_learning_rate or raise entropy_coefficient"
        return [f"the proposed fractions have run together (their entropy is {entropy:.2f} of the highest): {fix}"]
