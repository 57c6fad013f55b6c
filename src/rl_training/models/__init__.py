"""Networks."""

from rl_training.models.actor_critic import (
    MLPBCModel,
    MLPCQLModel,
    MLPGAILDiscriminator,
    MLPIQLModel,
    MLPREDQModel,
    MLPSACModel,
    MLPTD3Model,
    MLPXQLModel,
)
from rl_training.models.discrete_actor_critic import DiscreteSACModel
from rl_training.models.dreamer import DreamerModel
from rl_training.models.encoders import Normalizer
from rl_training.models.ensemble import MLPMOPOEnsembleModel, Prediction
from rl_training.models.layers import Layers
from rl_training.models.masks import ActionMask, valid_actions
from rl_training.models.offline import MLPAWACModel, MLPEDACModel, MLPFQLModel, MLPReBRACModel
from rl_training.models.on_policy import PPOModel
from rl_training.models.q_networks import BCQModel, DiscreteCQLModel, DQNModel, FQEModel, PQNModel, QNetwork
from rl_training.models.return_distributions import (
    Atoms,
    C51Model,
    FQFModel,
    IQNModel,
    MLPFQFNetwork,
    ProposedQuantiles,
    QRDQNModel,
    Quantiles,
    midpoints,
)

__all__ = [
    "ActionMask", "Atoms", "BCQModel", "C51Model", "DQNModel", "DiscreteCQLModel", "DiscreteSACModel", "DreamerModel",
    "FQEModel", "FQFModel", "IQNModel", "Layers", "MLPAWACModel", "MLPBCModel", "MLPCQLModel", "MLPEDACModel",
    "MLPFQFNetwork", "MLPFQLModel", "MLPGAILDiscriminator", "MLPIQLModel", "MLPMOPOEnsembleModel", "MLPREDQModel",
    "MLPReBRACModel", "MLPSACModel", "MLPTD3Model", "MLPXQLModel", "Normalizer", "PPOModel", "PQNModel", "Prediction",
    "ProposedQuantiles", "QNetwork", "QRDQNModel", "Quantiles", "midpoints", "valid_actions",
]  # fmt: skip
