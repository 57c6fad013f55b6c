"""Networks; they know tensors only."""

from rl_training.models.actor_critic import MLPBCModel, MLPIQLModel, MLPSACModel, PPOModel
from rl_training.models.normalizer import Normalizer
from rl_training.models.q_networks import DQNModel, QNetwork

__all__ = ["DQNModel", "MLPBCModel", "MLPIQLModel", "MLPSACModel", "Normalizer", "PPOModel", "QNetwork"]
