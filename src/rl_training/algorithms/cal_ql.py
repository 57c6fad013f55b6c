"""Calibrated Q-learning (Nakamoto et al., 2023, arXiv:2303.05479): CQL with returns-to-go as lower bounds of Q."""

from typing import Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from rl_training.algorithms.core.learner import Column
from rl_training.algorithms.cql import BOX_ALPHA, ConservativeConfig, CQLAlgorithm, CQLPredictions, cql_loss
from rl_training.types import Batch, Loss


class CalQLConfig(ConservativeConfig):
    cql_alpha: PositiveFloat | Literal["auto"] = Field(
        BOX_ALPHA, description=f"weight of the conservative penalty; auto: {BOX_ALPHA:g}"
    )
    max_target_backup: bool = Field(True, description="use the best of the sampled next actions in the target")


def cal_ql_loss(predictions: CQLPredictions, returns_to_go: Tensor, config: ConservativeConfig) -> Loss:
    """CQL's critic loss with max(Q(s, a), return-to-go) for the actions sampled from the policy."""
    policy_q = predictions.policy_q
    calibrated = torch.maximum(policy_q, returns_to_go)
    means = calibrated.mean((-2, -1))
    metrics = {
        "calibrated_q1_mean": means[0], "calibrated_q2_mean": means[1],
        "returns_to_go_mean": returns_to_go.mean(), "bound_rate": (policy_q < returns_to_go).float().mean(),
    }  # fmt: skip
    return cql_loss(predictions._replace(policy_q=calibrated), config).plus({}, metrics)


class CalQLAlgorithm(CQLAlgorithm):
    name = "cal_ql"
    config_type = CalQLConfig
    action_kinds = ("box",)
    needs = (Column("returns_to_go", online="episode end"),)

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        if "returns_to_go" not in batch:
            raise ValueError(
                "cal_ql needs the column returns_to_go, and this batch has none. "
                "Add it with TransitionDataset.with_discounted_returns_to_go(gamma)"
            )
        return cal_ql_loss(self.predict_batch(batch, alpha), batch["returns_to_go"], self.config)
