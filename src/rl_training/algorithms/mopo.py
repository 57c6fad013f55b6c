"""Model-based offline policy optimization (Yu et al., 2020, arXiv:2005.13239): offline MBPO, uncertainty penalised."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import Rate
from rl_training.algorithms.core.temperature import TemperatureConfig
from rl_training.algorithms.dynamics import ModelBasedConfig, ModelBasedLearner
from rl_training.algorithms.sac import SACAlgorithm
from rl_training.models.ensemble import Prediction


class MOPOConfig(ModelBasedConfig, TemperatureConfig):
    tau: Rate = Field(0.005, description="Polyak coefficient of the target critics")
    penalty: Literal["max_std", "disagreement", "ensemble_std"] = Field(
        "max_std", description="uncertainty: largest predicted std, or disagreement or std of the members' means"
    )
    penalty_coefficient: NonNegativeFloat = Field(1.0, description="weight of the uncertainty in the reward")
    rollout_batch_size: PositiveInt = Field(50_000, description="number of start states of the model rollouts")
    rollout_interval: PositiveInt = Field(1_000, description="updates between model rollouts")
    rollout_schedule: tuple[NonNegativeInt, NonNegativeInt, PositiveInt, PositiveInt] = Field(
        (0, 0, 5, 5), description="rollout length: start update, end update, first length, last length"
    )
    model_retention: PositiveInt = Field(5, description="number of recent model rollouts kept for replay")


def max_std(prediction: Prediction) -> Tensor:
    """max over members of |std(s, a)|, over the observation and the reward; [rows]."""
    return (0.5 * prediction.log_var).exp().norm(dim=-1).amax(0)


def disagreement(prediction: Prediction) -> Tensor:
    """max over members of |mean_i - mean of all members|, over the observation; [rows]."""
    means = prediction.mean[..., :-1]
    return (means - means.mean(0)).norm(dim=-1).amax(0)


def ensemble_std(prediction: Prediction) -> Tensor:
    """Root of the variance of the members' means, averaged over the observation's entries; [rows]."""
    return prediction.mean[..., :-1].var(0, unbiased=False).mean(-1).sqrt()


PENALTIES = {"max_std": max_std, "disagreement": disagreement, "ensemble_std": ensemble_std}


class MOPOAlgorithm(ModelBasedLearner, SACAlgorithm):
    name = "mopo"
    lane = "offline"
    lane_class = "offline_model_based"
    config_type = MOPOConfig

    def imagined_rewards(self, rewards: Tensor, prediction: Prediction) -> Tensor:
        """r - penalty_coefficient * uncertainty(s, a)."""
        return rewards - self.config.penalty_coefficient * PENALTIES[self.config.penalty](prediction)
