"""Networks of the offline actor-critic algorithms, as their authors initialise them."""

from __future__ import annotations

from rl_training.models.actor_critic import MLPTD3Model
from rl_training.models.layers import HiddenSizes
from rl_training.models.mlp import small_outputs
from rl_training.models.values import Critic

ACTOR_BOUND, CRITIC_BOUND = 1e-3, 3e-3  # of the initial output layers


class MLPReBRACModel(MLPTD3Model):
    """TD3's networks with a layer norm behind each activation of the critics, and small initial outputs."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: HiddenSizes = (256, 256, 256)) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.critic = Critic(obs_dim, action_dim, hidden_sizes, layer_norm="after")
        small_outputs(self.actor.net, ACTOR_BOUND)
        small_outputs(self.critic.net, CRITIC_BOUND)
