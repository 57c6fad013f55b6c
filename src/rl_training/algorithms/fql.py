"""Flow Q-learning (Park, Li & Levine, 2025, arXiv:2502.02538): a one-step policy distilled from a cloned flow."""

from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from rl_training.algorithms.core.config import OfflineTDConfig
from rl_training.algorithms.core.learner import Learner, frozen
from rl_training.models import MLPFQLModel
from rl_training.models.layers import Activation
from rl_training.types import Batch, Loss


class FQLConfig(OfflineTDConfig):
    hidden_sizes: tuple[PositiveInt, ...] = Field((512, 512, 512, 512), description="widths of the hidden layers")
    activation: Activation = Field("gelu", description="activation of the hidden layers")
    alpha: PositiveFloat = Field(10.0, description="weight of the distillation loss; tune it per dataset")
    flow_steps: PositiveInt = Field(10, description="Euler steps of the cloned flow")
    q_aggregation: Literal["mean", "min"] = Field("mean", description="value of the two critics in the TD target")
    normalize_q_loss: bool = Field(False, description="divide the Q-values of the policy loss by their mean magnitude")


def flow_matching_loss(velocity: Tensor, noise: Tensor, actions: Tensor) -> Tensor:
    """Flow matching loss: mean of (v(s, x_t, t) - (a - noise))^2 over rows and dimensions."""
    return (velocity - (actions - noise)).square().mean()


def fql_policy_loss(q: Tensor, policy_actions: Tensor, flow_actions: Tensor, config: FQLConfig) -> Loss:
    """Policy loss: alpha * mean (policy(s, z) - flow(s, z))^2 - mean Q(s, policy(s, z))."""
    distillation = config.alpha * (policy_actions - flow_actions).square().mean()
    q_loss = -q.mean() / q.abs().mean().detach() if config.normalize_q_loss else -q.mean()
    return Loss({"actor_loss": q_loss, "distillation_loss": distillation})


class FQLAlgorithm(Learner):
    """Policy and flow map noise z to an action. Deterministic actions have z = 0."""

    name = "fql"
    lane = "offline"
    config_type = FQLConfig
    model_type = MLPFQLModel
    action_kinds = ("box",)
    targets = ("critic",)
    parts = ("critics", "policy")

    def critics(self, batch: Batch) -> Loss:
        """Critic loss: mean of (Q(s, a) - target)^2 over rows and critics."""
        batch = self.normalized(batch)
        q, target_q = self.model.critic(batch["obs"], batch["actions"]), self.target_q(batch)
        return Loss({"critic_loss": (q - target_q).square().mean()}, {"target_q_mean": target_q.mean()})

    @torch.no_grad()
    def target_q(self, batch: Batch) -> Tensor:
        """TD target: r + gamma * (1 - done) * target Q(s', a') with a' from the one-step policy."""
        next_obs = batch["next_obs"]
        values = self.target["critic"](next_obs, self.model.actor(next_obs).sample().clamp(-1, 1))
        next_q = values.mean(0) if self.config.q_aggregation == "mean" else values.amin(0)
        return self.td_target(batch, next_q)

    def policy(self, batch: Batch) -> Loss:
        """Flow matching loss of the flow, and distillation and Q loss of the one-step policy."""
        obs, actions = self.normalizer(batch["obs"]), batch["actions"]
        start, noise = torch.randn(2, *actions.shape, device=actions.device)
        time = torch.rand(*actions.shape[:-1], 1, device=actions.device)
        velocity = self.model.flow(obs, (1 - time) * start + time * actions, time)
        policy_actions = self.model.actor.actions(obs, noise)
        q = frozen(self.model.critic)(obs, policy_actions.clamp(-1, 1)).mean(0)
        loss = fql_policy_loss(q, policy_actions, self.flow_actions(obs, noise), self.config)
        return loss.plus({"flow_loss": flow_matching_loss(velocity, start, actions)})

    @torch.no_grad()
    def flow_actions(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Integrates the flow from the noise in `flow_steps` Euler steps, and clips to [-1, 1]."""
        actions, steps = noise, self.config.flow_steps
        for step in range(steps):
            time = torch.full_like(actions[..., :1], step / steps)
            actions = actions + self.model.flow(obs, actions, time) / steps
        return actions.clamp(-1, 1)
