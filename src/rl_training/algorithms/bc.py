"""Behaviour cloning: supervised learning of the dataset's actions."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from rl_training.algorithms.core.config import TimedConfig
from rl_training.algorithms.core.learner import Learner
from rl_training.models import MLPBCModel
from rl_training.models.heads import CategoricalPolicy, MultiCategoricalPolicy
from rl_training.types import Batch, Loss


class BCConfig(TimedConfig):  # there are no TD targets: discount_time affects off-policy estimates only
    objective: Literal["likelihood", "mse"] = Field(
        "likelihood", description="maximum likelihood, or mean squared error (Box actions only)"
    )


def bc_loss(policy: Any, actions: Tensor, objective: str = "likelihood") -> Loss:
    """Policy loss: mean of -log pi(a|s), or for "mse" mean of (mode of pi(s) - a)^2.

    For MultiDiscrete actions, log pi(a|s) is the sum of the log-probabilities of the choices.
    """
    error = (policy.mode() - actions).square().mean() if objective == "mse" else -policy.log_prob(actions).mean()
    return Loss({"actor_loss": error}, {"entropy": policy.entropy().mean()})


class BCAlgorithm(Learner):
    name = "bc"
    lane = "offline"
    config_type = BCConfig
    model_type = MLPBCModel
    action_kinds: ClassVar[tuple[str, ...]] = ("box", "discrete", "multi_discrete")
    reads_rewards = False

    def setup(self) -> None:
        if self.config.objective == "mse" and isinstance(self.model.actor, CategoricalPolicy | MultiCategoricalPolicy):
            raise ValueError("objective 'mse' needs Box actions. Use 'likelihood' with other actions")

    def loss(self, batch: Batch) -> Loss:
        policy = self.model.actor(self.normalizer(batch["obs"]))
        return bc_loss(policy, batch["actions"], self.config.objective)
