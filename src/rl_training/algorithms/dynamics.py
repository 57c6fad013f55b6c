"""The dynamics ensemble of PETS and MBPO (Chua et al., 2018; Janner et al., 2019), fitted by maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rl_training.algorithms.core.config import AlgorithmConfig, Fraction
from rl_training.algorithms.core.learner import Learner
from rl_training.models.ensemble import MLPMOPOEnsembleModel, Prediction
from rl_training.models.heads import standard_normal
from rl_training.types import Batch, Loss, ParameterGroup

if TYPE_CHECKING:
    from typing_extensions import Self

BOUNDS_WEIGHT = 0.01
RAREST = 10.0  # most that a termination counts in its loss, against a step that goes on


class RolloutSchedule(NamedTuple):
    """Steps in the model: `first` until step `start`, `last` from step `end` on, whole numbers of the line between."""

    start: int
    end: int
    first: int
    last: int

    def at(self, step: int) -> int:
        way = min(max(step - self.start, 0), self.end - self.start)
        return self.last if step >= self.end else self.first + (self.last - self.first) * way // (self.end - self.start)


class ModelBasedConfig(AlgorithmConfig):
    model_members: PositiveInt = Field(7, description="networks of the model")
    model_elites: PositiveInt = Field(5, description="of them, those with the least error, which rollouts are made of")
    model_hidden_sizes: tuple[PositiveInt, ...] = Field((200,) * 4, description="widths of the model's hidden layers")
    model_learning_rate: PositiveFloat = Field(1e-3, description="step size of the model's optimizer")
    model_weight_decay: NonNegativeFloat = Field(
        2.5e-5, description="of the model's first layer; twice that of the second, thrice of others, four times at last"
    )
    model_normalize_targets: bool = Field(
        False, description="standardise what the model foresees; not so in the paper, but few rows go further"
    )
    model_holdout: Fraction = Field(0.2, gt=0, lt=1, description="share of the rows that only judge the model")
    model_max_holdout: PositiveInt = Field(5_000, description="rows that judge the model, at most")
    model_patience: PositiveInt = Field(5, description="passes over the rows without a better member before it ends")
    model_max_epochs: PositiveInt = Field(200, description="passes over the rows in one fit, at most")
    termination: Literal["auto", "learned"] = Field(
        "auto", description="what ends an episode in the model; auto: the task's own rule, where it is known"
    )
    rollout_batch_size: PositiveInt = Field(100_000, description="states that rollouts in the model start from")
    rollout_interval: PositiveInt = Field(250, description="steps between rollouts in the model")
    rollout_schedule: tuple[NonNegativeInt, NonNegativeInt, PositiveInt, PositiveInt] = Field(
        (20_000, 150_000, 1, 1), description="length of rollouts: from step, to step, first length, last length"
    )
    model_retention: PositiveInt = Field(4, description="rollouts whose rows are kept")
    real_ratio: Fraction = Field(0.05, description="share of real rows in a batch")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.model_elites > self.model_members:
            raise ValueError(f"model_elites must be at most model_members = {self.model_members}")
        if self.rollout_schedule[0] > self.rollout_schedule[1]:
            raise ValueError(f"rollout_schedule must not end before it starts, got {self.rollout_schedule}")
        return self


def gaussian_nll(mean: Tensor, log_var: Tensor, targets: Tensor) -> Tensor:
    """Twice the negative log-likelihood less a constant: its mean over rows and outputs, summed over members."""
    errors = (mean - targets).square() * (-log_var).exp() + log_var
    return errors.mean((-2, -1)).sum()


def layer_decays(layers: int, decay: float) -> list[float]:
    """Of the first layer, the second, those between, and the last: as 1, 2, 3 and 4."""
    return [decay * (4 if layer == layers - 1 else min(layer + 1, 3)) for layer in range(layers)]


def dynamics_targets(batch: Batch) -> Tensor:
    """What the model foresees of these rows: changes of the observation, then the reward."""
    return torch.cat([batch["next_obs"] - batch["obs"], batch["rewards"].unsqueeze(-1)], -1)


class Imagined(NamedTuple):
    """Steps that a random elite has taken for each row, and what all members foresaw."""

    next_obs: Tensor
    rewards: Tensor
    ended: Tensor
    prediction: Prediction


class Dynamics(Learner):
    """Fits the model of an environment. It stands in no catalogue: it has no policy.

    `rule` tells by the next observation whether an episode is over; without one, that is learned too.
    """

    name = "dynamics"
    lane = "offline"
    config_type = ModelBasedConfig
    model_type = MLPMOPOEnsembleModel
    action_kinds = ("box",)
    rule: Callable[[Tensor], Tensor] | None = None
    rarity: Tensor  # of terminations: what one of them counts

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        layers = self.model.layers()
        self.decays = layer_decays(len(layers), self.config.model_weight_decay)
        self.register_buffer("rarity", torch.ones(()))

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Once for the rows of a fit: the scales of numbers, and how rare terminations are."""
        self.model.scale_inputs(batch["obs"], batch["actions"])
        if self.config.model_normalize_targets:
            self.model.scale_targets(dynamics_targets(batch))
        ended = batch["dones"].sum()
        self.rarity.copy_(((len(batch["dones"]) - ended) / ended.clamp_min(1)).clamp(1, RAREST))
        return batch

    def loss(self, batch: Batch) -> Loss:
        prediction, targets = self.model(batch["obs"], batch["actions"]), dynamics_targets(batch)
        weights = [layer.weight.square().sum() for layer in self.model.layers()]
        terms = {
            "mbpo_model_loss": gaussian_nll(prediction.mean, prediction.log_var, targets),
            "model_decay": sum(0.5 * c * w for c, w in zip(self.decays, weights, strict=True)),
            "model_bounds": BOUNDS_WEIGHT * (self.model.max_log_var.sum() - self.model.min_log_var.sum()),
        }
        reward_errors = (prediction.mean[..., -1] - batch["rewards"]).abs()
        if self.rule is None:
            terms["termination_loss"] = self._termination_loss(prediction.ends, batch["dones"])
        return Loss(terms, {"reward_mae": reward_errors.mean()})

    def _termination_loss(self, ends: Tensor, dones: Tensor) -> Tensor:
        known = dones.expand_as(ends)
        wrong = binary_cross_entropy_with_logits(ends, known, pos_weight=self.rarity, reduction="none")
        return wrong.mean(-1).sum()

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.model_learning_rate, rate="model_learning_rate")]

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        """Mean squared error of each member's mean, on the scale that its targets have; [members]."""
        errors = self.model(batch["obs"], batch["actions"]).mean - dynamics_targets(batch)
        return (errors / self.model.target_std).square().mean((-2, -1))

    @torch.no_grad()
    def imagine(self, obs: Tensor, actions: Tensor, generator: torch.Generator | None = None) -> Imagined:
        """A step of every row by an elite of its own choice, drawn from what that elite holds likely."""
        prediction = self.model(obs, actions)
        elites = self.model.elites
        draws = torch.randint(len(elites), (len(obs),), generator=generator, device=obs.device)
        chosen = prediction.of(elites[draws])
        drawn = chosen.mean + (0.5 * chosen.log_var).exp() * standard_normal(chosen.mean, generator)
        next_obs = obs + drawn[:, :-1]
        ended = chosen.ends > 0 if self.rule is None else self.rule(next_obs)
        return Imagined(next_obs, drawn[:, -1], ended, prediction)
