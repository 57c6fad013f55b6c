"""Deep Q-learning (Mnih et al., 2015), with double action choice and a dueling network as options."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from rl_training.algorithms.config import AlgorithmConfig, Fraction, Rate, ReplayConfig
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.ops import bootstrapped, pick
from rl_training.models import DQNModel
from rl_training.schedules import Schedule
from rl_training.types import Action, Batch, Loss


class DQNConfig(ReplayConfig):
    double: bool = Field(False, description="the online network chooses the next action, the target network values it")
    dueling: bool = Field(False, description="split action values into a state value and advantages")
    target_interval: PositiveInt = Field(1_000, description="updates between moves of the target network")
    tau: Rate = Field(1.0, description="share of the way the target network moves; 1 copies it")
    epsilon_start: Fraction = Field(1.0, description="share of random actions at the beginning")
    epsilon_end: Fraction = Field(0.05, description="share of random actions once exploration has ended")
    exploration_fraction: Fraction = Field(0.1, description="share of training over which epsilon falls")


class DQN(Learner):
    name = "dqn"
    lane = "replay"
    config_type = DQNConfig
    model_type = DQNModel
    action_kinds = ("discrete",)
    takes_pixels = True
    targets = ("q",)
    epsilon: Tensor

    def __init__(self, model: nn.Module, config: AlgorithmConfig | None = None, **options: Any) -> None:
        super().__init__(model, config, **options)
        self.register_buffer("epsilon", torch.tensor(self.config.epsilon_start))

    def loss(self, batch: Batch) -> Loss:
        q = pick(self.model.q(batch["obs"]), batch["actions"])
        next_values = self.next_values(batch["next_obs"])
        target_q = bootstrapped(batch["rewards"], batch["dones"], next_values, self.config.gamma)
        return Loss({"loss": huber_loss(q, target_q)}, {"q_value_mean": q.mean(), "target_q_mean": target_q.mean()})

    @torch.no_grad()
    def next_values(self, next_obs: Tensor) -> Tensor:
        values = self.target["q"](next_obs)
        chooser = self.model.q(next_obs) if self.config.double else values
        return pick(values, chooser.argmax(-1))

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss", "targets") if (update + 1) % self.config.target_interval == 0 else ("loss",)

    def schedules(self) -> dict[str, Schedule]:
        c = self.config
        return {"epsilon": Schedule(start=c.epsilon_start, end=c.epsilon_end, fraction=c.exploration_fraction)}

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        values = self.model.q(obs)
        greedy = values.argmax(-1)
        if deterministic:
            return Action(greedy)
        # a coin and an action for each row
        draws = torch.rand(2, *greedy.shape, generator=generator, device=obs.device)
        random = (draws[1] * values.shape[-1]).long()
        return Action(torch.where(draws[0] < self.epsilon, random, greedy))
