"""Discrete BCQ (Fujimoto et al., 2019, arXiv:1910.01708): double Q-learning over actions that occur in the data."""

from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from torch.nn.functional import huber_loss

from rl_training.algorithms.core.config import Fraction, OfflineTDConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.algorithms.core.ops import epsilon_greedy, select_action
from rl_training.models import BCQModel, valid_actions
from rl_training.types import Action, Batch, Loss


class BCQConfig(OfflineTDConfig):
    threshold: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.3, description="lowest probability of an action in the data, relative to the likeliest; 0: every action"
    )
    logit_penalty: NonNegativeFloat = Field(0.01, description="weight of the squared logits of the behaviour policy")
    epsilon: Fraction = Field(0.0, description="probability of a random action during online fine-tuning")


def supported_values(values: Tensor, logits: Tensor, threshold: float) -> Tensor:
    """Q-values [rows, actions]; -inf where p(a|s) / max p(.|s) < threshold, for the data's probabilities p."""
    ratio = (logits - logits.amax(-1, keepdim=True)).exp()
    return values.masked_fill(ratio < threshold, -torch.inf)


def bcq_loss(q: Tensor, target_q: Tensor, logits: Tensor, actions: Tensor, logit_penalty: float) -> Loss:
    """Sum of the critic and behaviour losses.

    - critic: Huber loss of Q(s, a) - target
    - behaviour: mean of -log p(a|s), plus logit_penalty * mean of the squared logits
    """
    likelihood = select_action(logits.log_softmax(-1), actions).mean()
    terms = {"critic_loss": huber_loss(q, target_q), "bc_loss": logit_penalty * logits.square().mean() - likelihood}
    return Loss(terms, {"target_q_mean": target_q.mean(), "q_mean": q.mean()})


class BCQAlgorithm(Learner):
    name = "bcq"
    lane = "offline"
    config_type = BCQConfig
    model_type = BCQModel
    action_kinds = ("discrete",)
    targets = ("q",)

    def loss(self, batch: Batch) -> Loss:
        batch = self.normalized(batch)
        obs, actions = batch["obs"], batch["actions"]
        q, logits = select_action(self.model.q(obs), actions), self.model.behaviour(obs).logits
        return bcq_loss(q, self.target_q(batch), logits, actions, self.config.logit_penalty)

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target r + gamma * (1 - done) * target Q(s', a') for the best supported a' by the online network."""
        best = self.supported(batch["next_obs"]).argmax(-1)
        next_q = select_action(self.target["q"](batch["next_obs"]), best)
        return self.td_target(batch, next_q)

    def supported(self, obs: Tensor) -> Tensor:
        """Q-values; -inf for rare actions. The probabilities are relative to the likeliest valid action."""
        behaviour = self.model.behaviour(obs, *valid_actions(self.model.q, obs))
        return supported_values(self.model.q(obs), behaviour.logits, self.config.threshold)

    def act(
        self, obs: Tensor, memory: Any = None, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> Action:
        """The best supported actions; with the option `epsilon`, epsilon-greedy ones unless `deterministic`."""
        obs = self.normalizer(obs)
        values = self.supported(obs)
        if deterministic or not self.config.epsilon:
            return Action(values.argmax(-1))
        return Action(epsilon_greedy(values, self.config.epsilon, generator, *valid_actions(self.model.q, obs)))
