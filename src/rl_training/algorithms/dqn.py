"""Deep Q-learning (Mnih et al., 2015), and what its family shares: a member is a network and a comparison."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import AlgorithmConfig, Fraction, Rate, ReplayConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import bootstrapped
from rl_training.models import DQNModel
from rl_training.schedules import Schedule
from rl_training.types import Action, Batch, Loss, Metrics, ParameterGroup, UpdateResult


class DQNConfig(ReplayConfig):
    double: bool = Field(False, description="the online network chooses the next action, the target network values it")
    dueling: bool = Field(False, description="split action values into a state value and advantages")
    noisy: bool = Field(False, description="explore by noise in the last layers' weights, and not by epsilon")
    prioritized: bool = Field(False, description="draw rows by how wrong they were, weighed to make up for it")
    priority_alpha: Fraction = Field(0.6, description="exponent of priorities; 0 draws evenly")
    priority_beta: Fraction = Field(0.4, description="exponent of the weights at the beginning; it rises to 1")
    stacked_frames: bool | None = Field(
        None, description="observations are stacks of frames, newest last: keep each frame once; none: if Atari's"
    )
    target_interval: PositiveInt = Field(1_000, description="updates between moves of the target network")
    tau: Rate = Field(1.0, description="share of the way the target network moves; 1 copies it")
    epsilon_start: Fraction = Field(1.0, description="share of random actions at the beginning")
    epsilon_end: Fraction = Field(0.05, description="share of random actions once exploration has ended")
    exploration_fraction: Fraction = Field(0.1, description="share of training over which epsilon falls")
    adam_eps: PositiveFloat = Field(1e-8, description="added to Adam's root of mean squares")


class RowLosses(NamedTuple):
    """A comparison of what a network says of the actions taken with its targets, row by row."""

    terms: Metrics  # what is minimised, [rows] each
    errors: Tensor  # how wrong each row is: its priority
    values: Tensor  # expected returns
    targets: Tensor
    metrics: Metrics = {}


def of_action(seen: Tensor, actions: Tensor) -> Tensor:
    """What each row [actions, ...] says of its own action."""
    return seen.take_along_dim(actions.view(-1, *[1] * (seen.dim() - 1)), 1).squeeze(1)


def importance_weights(probabilities: Tensor, beta: Tensor) -> Tensor:
    """(1 / probabilities) ** beta divided by its maximum; `probabilities` are relative to uniform sampling."""
    weights = probabilities.pow(-beta)
    return weights / weights.amax()


class DQNAlgorithm(Learner):
    name = "dqn"
    lane = "replay"
    config_type: ClassVar[type[AlgorithmConfig]] = DQNConfig
    model_type: ClassVar[type[DQNModel]] = DQNModel
    action_kinds = ("discrete",)
    takes_pixels = True
    targets = ("q",)
    epsilon: Tensor
    priority_beta: Tensor
    last_td_errors: Tensor | None = None  # of the rows of the last `update`

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.register_buffer("epsilon", torch.tensor(self.config.epsilon_start))
        self.register_buffer("priority_beta", torch.tensor(self.config.priority_beta))

    def loss(self, batch: Batch) -> Loss:
        found = self.compare(self.predict(batch["obs"]), self.target_of(batch), batch["actions"])
        weights = importance_weights(batch["probabilities"], self.priority_beta) if "probabilities" in batch else 1.0
        terms = {name: (weights * term).mean() for name, term in found.terms.items()}
        metrics = {"q_value_mean": found.values.mean(), "target_q_mean": found.targets.mean()}
        return Loss(terms, {**metrics, **found.metrics}, rows={"priorities": found.errors.detach()})

    def predict(self, obs: Tensor) -> Any:
        """What the network that learns says of every action."""
        return self.look(self.model.q, obs)

    def look(
        self, network: Any, obs: Tensor, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """What a network says of every action; where it is noisy, with new noise."""
        return network(obs, None if deterministic else self.noise(network, obs, generator))

    def noise(self, network: Any, like: Tensor, generator: torch.Generator | None = None) -> Tensor | None:
        """Normal numbers for a look through a noisy network: all rows', or each row's own where a generator draws for
        environments that explore apart."""
        if not network.noise_size:
            return None
        rows = (len(like),) if generator is not None and len(like) > 1 else ()
        return torch.randn(*rows, network.noise_size, generator=generator, device=like.device)

    def expected(self, seen: Any) -> Tensor:
        """The action values [rows, actions] in what a network says."""
        values: Tensor = seen
        return values

    @torch.no_grad()
    def look_ahead(self, next_obs: Tensor) -> tuple[Any, Tensor]:
        """What the target network says of the next observations, and the actions chosen there."""
        seen = self.look(self.target["q"], next_obs)
        chooser = self.look(self.model.q, next_obs) if self.config.double else seen
        return seen, self.expected(chooser).argmax(-1)

    @torch.no_grad()
    def target_of(self, batch: Batch) -> Any:
        """What the prediction is compared with."""
        return self.backup(batch, of_action(*self.look_ahead(batch["next_obs"])))

    def backup(self, batch: Batch, returns: Tensor) -> Tensor:
        """The returns [..., rows] of steps after which there are these."""
        return bootstrapped(batch["rewards"], batch["dones"], returns, batch.get("discounts", self.config.gamma))

    def compare(self, seen: Any, target: Any, actions: Tensor) -> RowLosses:
        values = of_action(seen, actions)
        losses = huber_loss(values, target, reduction="none")
        return RowLosses({"loss": losses}, (target - values).abs(), values, target)

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss", "targets") if (update + 1) % self.config.target_interval == 0 else ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        c = self.config
        return [ParameterGroup(c.learning_rate, eps=c.adam_eps, max_grad_norm=c.max_grad_norm)]

    def schedules(self) -> dict[str, Schedule]:
        c = self.config
        epsilon = Schedule(start=c.epsilon_start, end=c.epsilon_end, fraction=c.exploration_fraction)
        beta = Schedule(start=c.priority_beta, end=1.0)
        moving = {"epsilon": None if c.noisy else epsilon, "priority_beta": beta if c.prioritized else None}
        return {name: schedule for name, schedule in moving.items() if schedule is not None}

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        values = self.expected(self.look(self.model.q, obs, deterministic=deterministic, generator=generator))
        greedy = values.argmax(-1)
        if deterministic or self.config.noisy:
            return Action(greedy)
        # a coin and an action for each row
        draws = torch.rand(2, *greedy.shape, generator=generator, device=obs.device)
        random = (draws[1] * values.shape[-1]).long()
        return Action(torch.where(draws[0] < self.epsilon, random, greedy))

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        result = super().update(batch, global_step=global_step)
        self.last_td_errors = result.priorities
        return result
