"""Options shared by families of algorithms. `rl-training explain ALGO` prints the field descriptions."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rl_training.algorithms.core.network import (
    MEMORY_OPTIONS,
    SIMBA,
    SIMBA_OPTIONS,
    Network,
    check_blocks,
    merge_network,
)
from rl_training.models.layers import KINDS
from rl_training.schedules import Schedule

Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
SHORT_SEQUENCE, LONG_SEQUENCE = 8, 32  # steps that a network with memory trains on by default
Hindsight = Literal["none", "future", "final", "episode"]
NoiseKind = Literal["none", "gaussian", "ornstein_uhlenbeck"]


class AlgorithmConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    takes_memory: ClassVar[bool] = False  # whether `network.memory` can add recurrent layers
    takes_simba: ClassVar[tuple[str, ...]] = ()  # kinds of residual blocks that `network` can be

    learning_rate: PositiveFloat = Field(3e-4, description="learning rate")
    batch_size: PositiveInt = Field(256, description="transitions per update")
    gamma: Fraction = Field(0.99, description="discount factor")
    hidden_sizes: tuple[PositiveInt, ...] = Field((256, 256), description="widths of the hidden layers")
    max_grad_norm: PositiveFloat | None = Field(None, description="maximum norm of the gradient; none: no clipping")
    network: Network = Field(
        None, description="networks of policy and value functions: a kind, or its options; none: the algorithm's own"
    )

    @model_validator(mode="before")
    @classmethod
    def _merge_network(cls, values: Any) -> Any:
        return merge_network(values, cls.model_fields) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _check_memory(self) -> "AlgorithmConfig":
        if self.is_recurrent and not self.takes_memory:
            raise ValueError(f"network.memory is for {_algorithms_that(lambda each: each.takes_memory)}; leave it out")
        return self

    @model_validator(mode="after")
    def _check_simba(self) -> "AlgorithmConfig":
        if self.network is not None and (kind := self.network.kind) in SIMBA:
            if kind not in self.takes_simba:
                instead = f"use network {self.takes_simba[0]}" if self.takes_simba else "leave it out"
                takers = _algorithms_that(lambda each: kind in each.takes_simba)
                raise ValueError(f"network {kind} is for {takers}; {instead}")
            check_blocks(self)
        return self

    @classmethod
    def unused_network_keys(cls) -> tuple[str, ...]:
        """Keys of the option `network` that the algorithm refuses."""
        return (() if cls.takes_memory else MEMORY_OPTIONS) + (() if cls.takes_simba else SIMBA_OPTIONS)

    @property
    def own_network(self) -> str | None:
        """`module:Class` of a network of your own, if the option `network` names one."""
        return self.network.kind if self.network is not None and self.network.kind not in KINDS else None

    @property
    def is_recurrent(self) -> bool:
        """Whether the option `network` adds recurrent layers."""
        return self.network is not None and self.network.memory is not None

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        allowed = (annotation, *get_args(annotation))
        is_word = any(isinstance(each, str) for each in allowed)  # pydantic refuses it and names the words
        if isinstance(value, bool) and bool not in allowed and not is_word:  # pydantic accepts it as 0 or 1
            raise ValueError(f"must not be true or false, got {value}")
        return value


def _algorithms_that(takes: Callable[[type[AlgorithmConfig]], bool]) -> str:
    from rl_training.algorithms import CATALOGUE  # its files import this one

    *names, last = (name for name, learner in CATALOGUE.items() if takes(learner.config_type))
    return f"{', '.join(names)} and {last}"


class OfflineConfig(AlgorithmConfig):
    normalize_obs: bool = Field(False, description="standardise observations by the dataset's mean and std")


class TimedConfig(OfflineConfig):
    discount_time: str | None = Field(
        None, min_length=1, description="time column of the file; discounts are then gamma ** (time step / time_unit)"
    )
    time_unit: PositiveFloat | None = Field(None, description="time that gamma discounts as one step")

    @model_validator(mode="after")
    def _unit_needs_time(self) -> "TimedConfig":
        if self.time_unit is not None and self.discount_time is None:
            raise ValueError("time_unit needs discount_time, the time column of the file")
        return self


class OfflineTDConfig(TimedConfig):
    n_step: PositiveInt = Field(1, description="steps of the n-step returns of the dataset")
    tau: Rate = Field(0.005, description="Polyak coefficient of the target networks")


class ActorRateConfig(AlgorithmConfig):
    actor_learning_rate: PositiveFloat | None = Field(
        None, description="learning rate of the actor; none: learning_rate"
    )


class PrecisionConfig(AlgorithmConfig):
    precision: Literal["float32", "bfloat16"] = Field("float32", description="precision of matrix products in the loss")


class ReplayConfig(AlgorithmConfig):
    buffer_size: PositiveInt = Field(1_000_000, description="capacity of the replay buffer in transitions")
    learning_starts: int = Field(1_000, ge=0, description="steps with random actions before the first update")
    collect_steps: PositiveInt = Field(1, description="steps of every environment per collection")
    updates_per_collect: PositiveInt = Field(1, description="updates per collection")
    n_step: PositiveInt = Field(1, description="steps of the n-step return")
    tau: Rate = Field(0.005, description="Polyak coefficient of the target network")
    normalize_obs: bool = Field(
        False,
        description="standardise observations by the running mean and std; with network simba or simba_v2 true by "
        "default",
    )
    hindsight: Hindsight = Field(
        "none", description="hindsight experience replay (HER) with goals of the same episode: future, final or episode"
    )
    hindsight_goals: PositiveInt = Field(4, description="replacement goals per transition, with hindsight")

    @field_validator("hindsight", mode="before")
    @classmethod
    def _read_no_hindsight(cls, value: Any) -> Any:
        return "none" if value is None else value

    @model_validator(mode="after")
    def _goals_need_hindsight(self) -> "ReplayConfig":
        goals, default = self.hindsight_goals, type(self).model_fields["hindsight_goals"].default
        # Stored configs set every option. Earlier versions stored other numbers of goals without hindsight.
        if "hindsight" not in self.model_fields_set and goals != default:
            has_others = len(get_args(type(self).model_fields["hindsight"].annotation)) > 1
            advice = "none; set hindsight, for example to future, or" if has_others else "always none;"
            raise ValueError(f"hindsight_goals is {goals}, but hindsight is {advice} leave hindsight_goals out")
        return self

    @model_validator(mode="after")
    def _hindsight_has_single_steps(self) -> "ReplayConfig":
        if self.hindsight != "none" and self.n_step > 1:
            raise ValueError(
                f"n_step is {self.n_step}, but with hindsight the steps of a return have different goals; set it to 1"
            )
        return self


class ReplayActorCriticConfig(PrecisionConfig, ReplayConfig):
    takes_simba: ClassVar[tuple[str, ...]] = SIMBA

    weight_decay: NonNegativeFloat = Field(0.0, description="decoupled weight decay of the networks (AdamW)")
    normalize_rewards: bool = Field(
        False,
        description="divide rewards by the running std of discounted returns, or by a fifth of the largest one if that "
        "is more; with network simba_v2 true by default",
    )


class ActionNoiseConfig(AlgorithmConfig):
    action_noise: NoiseKind = Field("none", description="exploration noise added to the actions")
    action_noise_scale: float = Field(0.1, ge=0, description="std of the exploration noise; actions are in [-1, 1]")
    action_noise_theta: Rate = Field(
        0.15, description="mean reversion rate of ornstein_uhlenbeck noise; 1: independent noise"
    )

    @field_validator("action_noise", mode="before")
    @classmethod
    def _read_null(cls, value: Any) -> Any:
        return "none" if value is None else value


class SequenceConfig(AlgorithmConfig):
    batch_size: PositiveInt = Field(16, description="windows per update")
    window: int = Field(64, ge=2, description="steps per window")
    train_ratio: PositiveFloat = Field(256.0, description="replayed steps per environment step")
    buffer_size: PositiveInt = Field(1_000_000, description="capacity of the replay buffer in steps")
    stored_latents: bool = Field(True, description="start windows from stored latents instead of zeros")
    learning_starts: int = Field(1_024, ge=0, description="steps before the first update")


class EpsilonGreedyConfig(AlgorithmConfig):
    epsilon_start: Fraction = Field(1.0, description="initial epsilon of epsilon-greedy exploration")
    epsilon_end: Fraction = Field(0.05, description="final epsilon")
    exploration_fraction: Fraction = Field(0.1, description="fraction of training over which epsilon decreases")

    def epsilon_schedule(self) -> Schedule:
        return Schedule(start=self.epsilon_start, end=self.epsilon_end, fraction=self.exploration_fraction)


class BaseRolloutConfig(AlgorithmConfig):
    num_steps: PositiveInt = Field(2048, description="steps of every environment per rollout")
    epochs: PositiveInt = Field(10, description="epochs per rollout")
    normalize_rewards: bool = Field(False, description="divide rewards by the running std of discounted returns")

    @property
    def steps_per_row(self) -> int:
        """Steps of one row of a batch: 1, or the length of a sequence."""
        return 1


class RolloutConfig(BaseRolloutConfig):
    takes_memory: ClassVar[bool] = True

    gae_lambda: Fraction = Field(0.95, description="lambda of generalised advantage estimation (GAE)")
    normalize_obs: bool = Field(False, description="standardise observations by their running mean and std")
    sequence_length: PositiveInt | None = Field(
        None,
        description="steps of the sequences that a network with memory trains on, a divisor of num_steps and "
        "batch_size; none: the largest one up to 32",
    )

    @model_validator(mode="after")
    def _check_sequences(self) -> "RolloutConfig":
        length, common = self.sequence_length, math.gcd(self.num_steps, self.batch_size)
        sizes = f"num_steps {self.num_steps} and batch_size {self.batch_size}"
        if length is not None and not self.is_recurrent:
            raise ValueError(f"sequence_length is {length}, but the network has no memory; set network.memory")
        if length is not None and common % length:
            raise ValueError(f"sequence_length must divide {sizes}, got {length}")
        if self.is_recurrent and length is None and self.steps_per_row < min(SHORT_SEQUENCE, self.num_steps):
            raise ValueError(
                f"{sizes} allow sequences of {self.steps_per_row} steps only; change them, or set sequence_length"
            )
        return self

    @property
    def steps_per_row(self) -> int:
        if not self.is_recurrent:
            return 1
        common = math.gcd(self.num_steps, self.batch_size)
        return self.sequence_length or max(n for n in range(1, LONG_SEQUENCE + 1) if common % n == 0)


def refuse_options(config: AlgorithmConfig, options: Sequence[str], wanted: str, given: str) -> None:
    """Raises a ValueError if an option for other actions differs from its default."""
    for option in (name for name in options if hasattr(config, name)):
        value, default = getattr(config, option), type(config).model_fields[option].default
        if value != default:
            raise ValueError(f"{option} is for {wanted} actions only, got {value}. Leave it at {default} for {given}")
