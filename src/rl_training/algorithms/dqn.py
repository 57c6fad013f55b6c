"""Deep Q-networks (Mnih et al., 2015, doi:10.1038/nature14236): Q-learning with a target network.

Options: double (arXiv:1509.06461), dueling (1511.06581), noisy (1706.10295), prioritised replay (1511.05952).
The distributional variants (C51, QR-DQN, IQN, FQF, Rainbow) are subclasses.
"""

from typing import Any, NamedTuple

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import EpsilonGreedyConfig, Fraction, PrecisionConfig, Rate, ReplayConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import epsilon_greedy, select_action
from rl_training.algorithms.core.precision import in_precision
from rl_training.models import DQNModel, valid_actions
from rl_training.schedules import Schedule
from rl_training.types import Action, Batch, Loss, Metrics, ParameterGroup, UpdateResult


class DQNConfig(EpsilonGreedyConfig, PrecisionConfig, ReplayConfig):
    double: bool = Field(False, description="double Q-learning: the online network selects the next action")
    dueling: bool = Field(False, description="dueling network: state value plus advantages")
    noisy: bool = Field(False, description="explore with noisy layers instead of epsilon-greedy")
    prioritized: bool = Field(False, description="prioritised replay with importance weights")
    priority_alpha: Fraction = Field(0.6, description="priority exponent; 0: uniform sampling")
    priority_beta: Fraction = Field(0.4, description="initial importance weight exponent; it rises to 1")
    stacked_frames: bool | None = Field(
        None, description="store each frame of stacked observations once; none: for Atari environments only"
    )
    target_interval: PositiveInt = Field(1_000, description="updates between updates of the target network")
    tau: Rate = Field(1.0, description="Polyak coefficient of the target network; 1: copy")
    adam_eps: PositiveFloat = Field(1e-8, description="epsilon of Adam")


class RowLosses(NamedTuple):
    """Losses per row before importance weighting."""

    terms: Metrics  # [rows] each
    errors: Tensor  # [rows], priorities
    values: Tensor  # expected returns
    targets: Tensor
    metrics: Metrics = {}


def importance_weights(probabilities: Tensor, beta: Tensor) -> Tensor:
    """(1 / probabilities) ** beta divided by its maximum; `probabilities` are relative to uniform sampling."""
    weights = probabilities.pow(-beta)
    return weights / weights.amax()


def network_noise(network: Any, obs: Tensor, generator: torch.Generator | None = None) -> Tensor | None:
    """Normal noise for a noisy network: shared by all rows, or with a generator different for each row."""
    if not network.noise_size:
        return None
    rows = (len(obs),) if generator is not None and len(obs) > 1 else ()
    return torch.randn(*rows, network.noise_size, generator=generator, device=obs.device)


def q_values(prediction: Any) -> Tensor:
    """Q-values [rows, actions] of a prediction: the tensor itself or the mean of a distribution."""
    return prediction if isinstance(prediction, Tensor) else prediction.expected()


class DQNAlgorithm(Learner):
    """Subclasses change the network's output (`model_type`), the target (`loss_target`) and the loss (`row_losses`)."""

    name = "dqn"
    lane = "replay"
    config_type = DQNConfig
    model_type = DQNModel
    action_kinds = ("discrete",)
    takes_pixels = True
    targets = ("q",)
    epsilon: Tensor
    priority_beta: Tensor
    last_td_errors: Tensor | None = None  # those of the last batch given to `update`

    def setup(self) -> None:
        self.register_buffer("epsilon", torch.tensor(self.config.epsilon_start))
        self.register_buffer("priority_beta", torch.tensor(self.config.priority_beta))

    @in_precision
    def loss(self, batch: Batch) -> Loss:
        """Mean of w * loss of a row, for DQN w * huber(Q(s, a) - target); w are importance weights or 1."""
        batch = self.normalized(batch)
        losses = self.row_losses(self.predict(batch["obs"]), self.loss_target(batch), batch["actions"])
        weights = importance_weights(batch["probabilities"], self.priority_beta) if "probabilities" in batch else 1.0
        terms = {name: (weights * term).mean() for name, term in losses.terms.items()}
        metrics = {"q_value_mean": losses.values.mean(), "target_q_mean": losses.targets.mean()}
        return Loss(terms, {**metrics, **losses.metrics}, rows={"priorities": losses.errors.detach()})

    def predict(self, obs: Tensor) -> Any:
        """Prediction of the online network in the loss."""
        return self.evaluate(self.model.q, obs)

    def evaluate(
        self, network: Any, obs: Tensor, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Any:
        """Evaluates a network for all actions; noisy networks get new noise unless `deterministic`."""
        return network(obs, None if deterministic else network_noise(network, obs, generator))

    @torch.no_grad()
    def predict_next(self, next_obs: Tensor) -> tuple[Any, Tensor]:
        """Target network's prediction at s' and the greedy next actions (by the online network if `double`)."""
        prediction = self.evaluate(self.target["q"], next_obs)
        chooser = self.evaluate(self.model.q, next_obs) if self.config.double else prediction
        return prediction, q_values(chooser).argmax(-1)

    @torch.no_grad()
    def loss_target(self, batch: Batch) -> Any:
        """TD target: r + gamma * (1 - done) * target Q(s', a')."""
        return self.td_target(batch, select_action(*self.predict_next(batch["next_obs"])))

    def row_losses(self, prediction: Any, target: Any, actions: Tensor) -> RowLosses:
        """Huber loss of Q(s, a) - target."""
        values = select_action(prediction, actions)
        losses = huber_loss(values, target, reduction="none")
        return RowLosses({"loss": losses}, (target - values).abs(), values, target)

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss", "targets") if (update + 1) % self.config.target_interval == 0 else ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        c = self.config
        return [ParameterGroup(c.learning_rate, eps=c.adam_eps, max_grad_norm=c.max_grad_norm)]

    def schedules(self) -> dict[str, Schedule]:
        c = self.config
        epsilon, beta = c.epsilon_schedule(), Schedule(start=c.priority_beta, end=1.0)
        return ({} if c.noisy else {"epsilon": epsilon}) | ({"priority_beta": beta} if c.prioritized else {})

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """Epsilon-greedy actions; greedy if `deterministic` or if the network is noisy."""
        obs = self.normalizer(obs)
        values = q_values(self.evaluate(self.model.q, obs, deterministic=deterministic, generator=generator))
        if deterministic or self.config.noisy:
            return Action(values.argmax(-1))
        return Action(epsilon_greedy(values, self.epsilon, generator, *valid_actions(self.model.q, obs)))

    def update(self, batch: Batch, *, global_step: int = 0) -> UpdateResult:
        result = super().update(batch, global_step=global_step)
        self.last_td_errors = result.priorities
        return result
