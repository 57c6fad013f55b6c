"""What every algorithm of a family can be told; the one home of shared defaults.

A field's description is its help text: `rl-training explain ALGO` and the docs print it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
NoiseKind = Literal["none", "gaussian", "ornstein_uhlenbeck"]


class AlgorithmConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    learning_rate: PositiveFloat = Field(3e-4, description="step size of the optimizer")
    batch_size: PositiveInt = Field(256, description="rows in one update")
    gamma: Fraction = Field(0.99, description="discount of future rewards")
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256), description="widths of the hidden layers")
    max_grad_norm: PositiveFloat | None = Field(None, description="clip the gradient to this norm; none: never")

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        wanted = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (wanted, *get_args(wanted)):  # pydantic would take it for 0 or 1
            raise ValueError(f"must not be a truth value, got {value}")
        return value


class OfflineConfig(AlgorithmConfig):
    normalize_obs: bool = Field(False, description="standardise observations by the dataset's mean and deviation")


class ReplayConfig(AlgorithmConfig):
    buffer_size: PositiveInt = Field(1_000_000, description="rows the replay ring holds")
    learning_starts: int = Field(1_000, ge=0, description="steps of random actions before the first update")
    collect_steps: PositiveInt = Field(1, description="steps of every environment between updates")
    updates_per_collect: PositiveInt = Field(1, description="updates after each collection")
    n_step: PositiveInt = Field(1, description="rewards summed in a target before the next value is taken")
    tau: Rate = Field(0.005, description="share of the way a target network moves at each of its moves")


class ActionNoiseConfig(AlgorithmConfig):
    action_noise: NoiseKind = Field("none", description="noise added to the actions that are taken")
    action_noise_scale: NonNegativeFloat = Field(0.1, description="its deviation; actions are in [-1, 1]")
    action_noise_theta: Rate = Field(
        0.15, description="share of ornstein_uhlenbeck noise that each step forgets; 1: all of it, as gaussian does"
    )


class SequenceConfig(AlgorithmConfig):
    batch_size: PositiveInt = Field(16, description="windows in one update")
    window: int = Field(64, ge=2, description="steps of a window")
    train_ratio: PositiveFloat = Field(256.0, description="steps replayed in updates for each step of a policy")
    buffer_size: PositiveInt = Field(1_000_000, description="steps the replay holds")
    stored_latents: bool = Field(True, description="windows begin with what was remembered before them, not blank")
    learning_starts: int = Field(1_024, ge=0, description="steps before the first update")


class RolloutConfig(AlgorithmConfig):
    num_steps: PositiveInt = Field(2048, description="steps of every environment in a rollout")
    epochs: PositiveInt = Field(10, description="passes over a rollout")
    gae_lambda: Fraction = Field(0.95, description="trace decay of the advantage estimates")
    normalize_obs: bool = Field(False, description="standardise observations by their running statistics")
    normalize_rewards: bool = Field(False, description="divide rewards by the deviation of their discounted sums")
