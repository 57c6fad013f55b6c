"""Calibrated Q-learning (Nakamoto et al., 2023): CQL that pushes no value of the policy below the data's own return."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.core.columns import Column
from rl_training.algorithms.cql import CQLAlgorithm, CQLConfig, CQLPredictions, cql_loss
from rl_training.types import Batch, Loss


class CalQLConfig(CQLConfig):
    max_target_backup: bool = Field(True, description="value next states by the best of the samples")


def cal_ql_loss(seen: CQLPredictions, returns_to_go: Tensor, config: CQLConfig) -> Loss:
    """CQL's, with the policy's values lifted to the return of their row; a value that was lifted is not pushed."""
    calibrated = torch.maximum(seen.policy_q, returns_to_go)
    means = calibrated.mean((-2, -1))
    return cql_loss(seen._replace(policy_q=calibrated), config).plus(
        {},
        {
            "calibrated_q1_mean": means[0],
            "calibrated_q2_mean": means[1],
            "returns_to_go_mean": returns_to_go.mean(),
            "bound_rate": (seen.policy_q < returns_to_go).float().mean(),
        },
    )


class CalQLAlgorithm(CQLAlgorithm):
    name = "cal_ql"
    config_type = CalQLConfig
    action_kinds = ("box",)
    needs = (Column("returns_to_go", online="episode end"),)

    def critic_loss(self, batch: Batch, alpha: Tensor) -> Loss:
        if "returns_to_go" not in batch:
            raise ValueError(
                "cal_ql needs the column returns_to_go, and this batch has none; "
                "TransitionDataset.with_discounted_returns_to_go(gamma) adds it"
            )
        return cal_ql_loss(self.predict_batch(batch, alpha), batch["returns_to_go"], self.config)
