"""Dynamics ensemble of PETS and MBPO (Chua et al., 2018, arXiv:1805.12114; Janner et al., 2019, arXiv:1906.08253)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rl_training.algorithms.core.config import AlgorithmConfig, Fraction
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.updater import Updater
from rl_training.models.ensemble import MLPMOPOEnsembleModel, Prediction
from rl_training.models.heads import standard_normal
from rl_training.types import Batch, EnvSpec, Loss, ParameterGroup, UpdateResult

if TYPE_CHECKING:
    from typing_extensions import Self

BOUNDS_WEIGHT = 0.01
MAX_TERMINATION_WEIGHT = 10.0


class RolloutSchedule(NamedTuple):
    """Rollout length: `first` until step `start`, then linear (rounded down) to `last` at step `end`."""

    start: int
    end: int
    first: int
    last: int

    def at(self, step: int) -> int:
        if step >= self.end:
            return self.last
        return self.first + (self.last - self.first) * max(step - self.start, 0) // max(self.end - self.start, 1)


class ModelBasedConfig(AlgorithmConfig):
    model_members: PositiveInt = Field(7, description="networks in the dynamics ensemble")
    model_elites: PositiveInt = Field(5, description="networks with the lowest holdout error, used for rollouts")
    model_hidden_sizes: tuple[PositiveInt, ...] = Field((200,) * 4, description="widths of the model's hidden layers")
    model_learning_rate: PositiveFloat = Field(1e-3, description="learning rate of the model")
    model_weight_decay: NonNegativeFloat = Field(
        2.5e-5, description="weight decay of the model's first layer; times 2, 3, ..., 3, 4 in later layers"
    )
    model_normalize_targets: bool = Field(
        False, description="standardise the model's targets; not in the paper, but better with little data"
    )
    model_holdout: float = Field(0.2, gt=0, lt=1, description="fraction of the transitions held out for validation")
    model_max_holdout: PositiveInt = Field(5_000, description="maximum number of held-out transitions")
    model_patience: PositiveInt = Field(5, description="epochs without improvement before a model fit stops")
    model_max_epochs: PositiveInt = Field(200, description="maximum number of epochs of a model fit")
    termination: Literal["auto", "learned"] = Field(
        "auto", description="termination of model rollouts; auto: the environment's known rule, else learned"
    )
    rollout_batch_size: PositiveInt = Field(100_000, description="number of start states of the model rollouts")
    rollout_interval: PositiveInt = Field(250, description="steps between model rollouts")
    rollout_schedule: tuple[NonNegativeInt, NonNegativeInt, PositiveInt, PositiveInt] = Field(
        (20_000, 150_000, 1, 1), description="rollout length: start step, end step, first length, last length"
    )
    model_retention: PositiveInt = Field(4, description="number of recent model rollouts kept for replay")
    real_ratio: Fraction = Field(0.05, description="fraction of real transitions in a batch")

    @model_validator(mode="after")
    def _check_elites_and_schedule(self) -> Self:
        if self.model_elites > self.model_members:
            raise ValueError(
                f"model_elites must be at most model_members = {self.model_members}, got {self.model_elites}"
            )
        if self.rollout_schedule[0] > self.rollout_schedule[1]:
            raise ValueError(f"rollout_schedule must not end before it starts, got {self.rollout_schedule}")
        return self


def gaussian_nll(mean: Tensor, log_var: Tensor, targets: Tensor) -> Tensor:
    """Gaussian loss: mean of (mean - target)^2 * exp(-log_var) + log_var, summed over the ensemble."""
    errors = (mean - targets).square() * (-log_var).exp() + log_var
    return errors.mean((-2, -1)).sum()


def layer_decays(layers: int, decay: float) -> list[float]:
    """Weight decay per layer: decay * (1, 2, 3, ..., 3, 4)."""
    return [decay * (4 if layer == layers - 1 else min(layer + 1, 3)) for layer in range(layers)]


def dynamics_targets(batch: Batch) -> Tensor:
    """Model targets: next_obs - obs, then the reward; [rows, obs_dim + 1]."""
    return torch.cat([batch["next_obs"] - batch["obs"], batch["rewards"].unsqueeze(-1)], -1)


class Imagined(NamedTuple):
    """One model step per row by a random elite, and the predictions of all members."""

    next_obs: Tensor
    rewards: Tensor
    ended: Tensor
    prediction: Prediction


class Dynamics(Learner):
    """Fits the dynamics ensemble. It is not in the catalogue because it has no policy."""

    name = "dynamics"
    lane = "offline"
    config_type = ModelBasedConfig
    model_type = MLPMOPOEnsembleModel
    action_kinds = ("box",)
    rule: Callable[[Tensor], Tensor] | None = None  # maps next_obs to terminations; None: the model learns them
    rarity: Tensor  # weight of a termination in its loss

    @classmethod
    def build_model(cls, spec: EnvSpec, config: Any) -> MLPMOPOEnsembleModel:
        return cls.model_type.build(spec, config)  # the option `network` is for policy and critics

    def new_normalizer(self) -> nn.Module:
        return nn.Identity()  # the model scales its inputs; `normalize_obs` is for policy and critics

    def setup(self) -> None:
        self.decays = layer_decays(len(self.model.layers()), self.config.model_weight_decay)
        self.register_buffer("rarity", torch.ones(()))

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Batch:
        """Fits the input (and target) statistics and the weight of terminations."""
        self.model.scale_inputs(batch["obs"], batch["actions"])
        if self.config.model_normalize_targets:
            self.model.scale_targets(dynamics_targets(batch))
        ended = batch["dones"].sum()
        self.rarity.copy_(((len(batch["dones"]) - ended) / ended.clamp_min(1)).clamp(1, MAX_TERMINATION_WEIGHT))
        return batch

    def loss(self, batch: Batch) -> Loss:
        """Gaussian NLL + weight decay / 2 * |W|^2 + 0.01 * (sum max_log_var - sum min_log_var) + termination loss."""
        prediction, targets = self.model(batch["obs"], batch["actions"]), dynamics_targets(batch)
        weights = [layer.weight.square().sum() for layer in self.model.layers()]
        terms = {
            "mbpo_model_loss": gaussian_nll(prediction.mean, prediction.log_var, targets),
            "model_decay": sum(0.5 * c * w for c, w in zip(self.decays, weights, strict=True)),
            "model_bounds": BOUNDS_WEIGHT * (self.model.max_log_var.sum() - self.model.min_log_var.sum()),
        }
        reward_errors = (prediction.mean[..., -1] - batch["rewards"]).abs()
        if self.rule is None:
            labels = batch["dones"].expand_as(prediction.ends)
            losses = binary_cross_entropy_with_logits(prediction.ends, labels, pos_weight=self.rarity, reduction="none")
            terms["termination_loss"] = losses.mean(-1).sum()
        return Loss(terms, {"reward_mae": reward_errors.mean()})

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(self.config.model_learning_rate, rate="model_learning_rate")]

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        """Mean squared error of each member's mean prediction in units of the target std; [members]."""
        errors = self.model(batch["obs"], batch["actions"]).mean - dynamics_targets(batch)
        return (errors / self.model.target_std).square().mean((-2, -1))

    @torch.no_grad()
    def imagine(self, obs: Tensor, actions: Tensor, generator: torch.Generator | None = None) -> Imagined:
        """Samples one model step per row from a random elite."""
        prediction = self.model(obs, actions)
        elites = self.model.elites
        index = torch.randint(len(elites), (len(obs),), generator=generator, device=obs.device)
        chosen = prediction.of(elites[index])
        sampled = chosen.mean + (0.5 * chosen.log_var).exp() * standard_normal(chosen.mean, generator)
        next_obs = obs + sampled[:, :-1]
        ended = chosen.ends > 0 if self.rule is None else self.rule(next_obs)
        return Imagined(next_obs, sampled[:, -1], ended, prediction)


class ModelBasedLearner(Learner):
    """Base of MBPO and MOPO: rewards of model steps, and a dynamics model for your own training loop."""

    def imagined_rewards(self, rewards: Tensor, prediction: Prediction) -> Tensor:
        """Rewards of model steps [rows], given the predictions of all members."""
        return rewards

    @cached_property
    def model_updater(self) -> Updater:
        """Updater of a dynamics model for `update_model`; in a run the lane has its own."""
        spec = EnvSpec(self.model.obs_shape, "box", self.model.action_dim)
        return Updater([Dynamics.build(spec, self.config).to(next(self.parameters()).device)])

    def update_model(self, batch: Batch) -> UpdateResult:
        """Updates the dynamics model once; the first batch sets the input statistics."""
        if not self.model_updater.updates:
            dynamics: Any = self.model_updater.learner
            dynamics.prepare(batch)
        return self.model_updater.update(batch)
