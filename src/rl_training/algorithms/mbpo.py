"""Model-based policy optimization (Janner et al., 2019, arXiv:1906.08253): SAC on short model rollouts."""

from typing import Any, Literal

from pydantic import Field, PositiveInt, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from rl_training.algorithms.dynamics import ModelBasedConfig, ModelBasedLearner
from rl_training.algorithms.sac import SACAlgorithm, SACConfig

FIXED = {  # options with one value, and the reasons
    "n_step": "model rollouts have single steps only",
    "hindsight": "hindsight needs whole episodes, and model rollouts are short",
}


class MBPOConfig(ModelBasedConfig, SACConfig):
    learning_starts: int = Field(5_000, ge=1, description="steps with random actions before the first fit and update")
    updates_per_collect: PositiveInt = Field(20, description="updates per collection")
    model_train_interval: PositiveInt = Field(250, description="environment steps between model fits")
    n_step: Literal[1] = Field(1, description=f"always 1: {FIXED['n_step']}")
    hindsight: Literal["none"] = Field("none", description=f"always none: {FIXED['hindsight']}")

    @field_validator(*FIXED, mode="wrap")
    @classmethod
    def _give_reason(cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        try:
            return read(value)
        except ValidationError as error:
            name = str(info.field_name)
            only = cls.model_fields[name].default
            raise ValueError(f"must be {only!r} for mbpo, because {FIXED[name]}; got {value!r}") from error


class MBPOAlgorithm(ModelBasedLearner, SACAlgorithm):
    name = "mbpo"
    lane_class = "model_based"
    config_type = MBPOConfig
