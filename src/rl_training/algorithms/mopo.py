"""Model-based offline policy optimization (Yu et al., 2020): MBPO on data, paid less where its model is unsure."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import AlgorithmConfig, Rate
from rl_training.algorithms.dynamics import ModelBasedConfig
from rl_training.algorithms.mbpo import MBPOAlgorithm
from rl_training.algorithms.sac import TemperatureConfig
from rl_training.models.ensemble import Prediction


class MOPOConfig(ModelBasedConfig, TemperatureConfig):
    tau: Rate = Field(0.005, description="share of the way the target critics move at each update")
    penalty: Literal["max_std", "disagreement", "ensemble_std"] = Field(
        "max_std", description="how unsure the model is: its largest own deviation, or how its members differ"
    )
    penalty_coefficient: NonNegativeFloat = Field(1.0, description="reward taken for each unit of that")
    rollout_batch_size: PositiveInt = Field(50_000, description="states that rollouts in the model start from")
    rollout_interval: PositiveInt = Field(1_000, description="updates between rollouts in the model")
    rollout_schedule: tuple[NonNegativeInt, NonNegativeInt, PositiveInt, PositiveInt] = Field(
        (0, 0, 5, 5), description="length of rollouts: from update, to update, first length, last length"
    )
    model_retention: PositiveInt = Field(5, description="rollouts whose rows are kept")


def max_std(prediction: Prediction) -> Tensor:
    """The longest vector of deviations that a member foresees, its reward's among them; [rows]."""
    return (0.5 * prediction.log_var).exp().norm(dim=-1).amax(0)


def disagreement(prediction: Prediction) -> Tensor:
    """How far the farthest member's next observation is from the mean of all; [rows]."""
    means = prediction.mean[..., :-1]
    return (means - means.mean(0)).norm(dim=-1).amax(0)


def ensemble_std(prediction: Prediction) -> Tensor:
    """Root of the variance of the members' next observations, averaged over their numbers; [rows]."""
    return prediction.mean[..., :-1].var(0, unbiased=False).mean(-1).sqrt()


PENALTIES = {"max_std": max_std, "disagreement": disagreement, "ensemble_std": ensemble_std}


class MOPOAlgorithm(MBPOAlgorithm):
    name = "mopo"
    lane = "offline"
    lane_class = "offline_model_based"
    config_type: ClassVar[type[AlgorithmConfig]] = MOPOConfig

    def imagined_rewards(self, rewards: Tensor, prediction: Prediction) -> Tensor:
        return rewards - self.config.penalty_coefficient * PENALTIES[self.config.penalty](prediction)
