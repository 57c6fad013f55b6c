"""Networks; they know tensors only."""

from rl_training.models.actor_critic import (
    MLPBCModel,
    MLPIQLModel,
    MLPSACModel,
    MLPTD3Model,
    MLPXQLModel,
    PPOModel,
)
from rl_training.models.normalizer import Normalizer
from rl_training.models.q_networks import DQNModel, FQEModel, QNetwork

__all__ = [
    "DQNModel",
    "FQEModel",
    "MLPBCModel",
    "MLPIQLModel",
    "MLPSACModel",
    "MLPTD3Model",
    "MLPXQLModel",
    "Normalizer",
    "PPOModel",
    "QNetwork",
]
