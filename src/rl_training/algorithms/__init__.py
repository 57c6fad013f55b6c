"""The catalogue: one import and one row an algorithm. The registry, the API and the command line read it."""

from __future__ import annotations

from rl_training.algorithms.bc import BC, BCConfig, bc_loss
from rl_training.algorithms.c51 import C51, C51Config, categorical_divergence, project_atoms
from rl_training.algorithms.cal_ql import CalQL, CalQLConfig, cal_ql_loss
from rl_training.algorithms.core.config import (
    AlgorithmConfig,
    OfflineConfig,
    ReplayConfig,
    RolloutConfig,
    SequenceConfig,
)
from rl_training.algorithms.core.learner import Learner, OfflineLearner, frozen
from rl_training.algorithms.core.updater import Updater
from rl_training.algorithms.cql import CQL, CQLConfig, CQLPredictions, cql_loss
from rl_training.algorithms.dqn import DQN, DQNConfig
from rl_training.algorithms.dreamer import Dreamer, DreamerConfig, lambda_returns
from rl_training.algorithms.dynamics import Dynamics, ModelBasedConfig, gaussian_nll
from rl_training.algorithms.fqe import FQE, FQEConfig, fqe_loss
from rl_training.algorithms.fqf import FQF, FQFConfig, fraction_gradient
from rl_training.algorithms.gail import (
    GAIL,
    DiscriminatorConfig,
    GAILConfig,
    GAILDiscriminator,
    discriminator_loss,
    gail_reward,
)
from rl_training.algorithms.iql import IQL, IQLConfig, IQLPredictions, iql_loss
from rl_training.algorithms.iqn import IQN, IQNConfig
from rl_training.algorithms.mbpo import MBPO, MBPOConfig
from rl_training.algorithms.mopo import MOPO, MOPOConfig
from rl_training.algorithms.ppo import PPO, PPOConfig, clipped_surrogate
from rl_training.algorithms.qr_dqn import QRDQN, QRDQNConfig, quantile_huber_loss
from rl_training.algorithms.rainbow import Rainbow, RainbowConfig
from rl_training.algorithms.redq import REDQ, REDQConfig
from rl_training.algorithms.sac import SAC, SACConfig, sac_actor_loss, temperature_loss
from rl_training.algorithms.td3 import TD3, TD3Config, smoothed_actions
from rl_training.algorithms.td3_bc import TD3BC, TD3BCConfig, td3_bc_loss
from rl_training.algorithms.xql import XQL, XQLConfig, gumbel_rescale_loss, xql_loss, xql_value_loss

BCAlgorithm, DQNAlgorithm, IQLAlgorithm, PPOAlgorithm, SACAlgorithm = BC, DQN, IQL, PPO, SAC
CalQLAlgorithm, CQLAlgorithm, TD3BCAlgorithm, XQLAlgorithm = CalQL, CQL, TD3BC, XQL
MBPOAlgorithm, MOPOAlgorithm = MBPO, MOPO
C51Algorithm, FQFAlgorithm, IQNAlgorithm, QRDQNAlgorithm, RainbowAlgorithm = C51, FQF, IQN, QRDQN, Rainbow
GAILAlgorithm, DreamerAlgorithm = GAIL, Dreamer
REDQAlgorithm, TD3Algorithm = REDQ, TD3

_LEARNERS: tuple[type[Learner], ...] = (
    BC, C51, CalQL, CQL, DQN, Dreamer, FQF, GAIL, IQL, IQN, MBPO, MOPO, PPO, QRDQN, Rainbow, REDQ, SAC, TD3, TD3BC, XQL,
)  # fmt: skip
CATALOGUE: dict[str, type[Learner]] = {learner.name: learner for learner in _LEARNERS}

__all__ = [
    "BC",
    "C51",
    "CATALOGUE",
    "CQL",
    "DQN",
    "FQE",
    "FQF",
    "GAIL",
    "IQL",
    "IQN",
    "MBPO",
    "MOPO",
    "PPO",
    "QRDQN",
    "REDQ",
    "SAC",
    "TD3",
    "TD3BC",
    "XQL",
    "AlgorithmConfig",
    "BCAlgorithm",
    "BCConfig",
    "C51Algorithm",
    "C51Config",
    "CQLAlgorithm",
    "CQLConfig",
    "CQLPredictions",
    "CalQL",
    "CalQLAlgorithm",
    "CalQLConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "DiscriminatorConfig",
    "Dreamer",
    "DreamerAlgorithm",
    "DreamerConfig",
    "Dynamics",
    "FQEConfig",
    "FQFAlgorithm",
    "FQFConfig",
    "GAILAlgorithm",
    "GAILConfig",
    "GAILDiscriminator",
    "IQLAlgorithm",
    "IQLConfig",
    "IQLPredictions",
    "IQNAlgorithm",
    "IQNConfig",
    "Learner",
    "MBPOAlgorithm",
    "MBPOConfig",
    "MOPOAlgorithm",
    "MOPOConfig",
    "ModelBasedConfig",
    "OfflineConfig",
    "OfflineLearner",
    "PPOAlgorithm",
    "PPOConfig",
    "QRDQNAlgorithm",
    "QRDQNConfig",
    "REDQAlgorithm",
    "REDQConfig",
    "Rainbow",
    "RainbowAlgorithm",
    "RainbowConfig",
    "ReplayConfig",
    "RolloutConfig",
    "SACAlgorithm",
    "SACConfig",
    "SequenceConfig",
    "TD3Algorithm",
    "TD3BCAlgorithm",
    "TD3BCConfig",
    "TD3Config",
    "Updater",
    "XQLAlgorithm",
    "XQLConfig",
    "bc_loss",
    "cal_ql_loss",
    "categorical_divergence",
    "clipped_surrogate",
    "cql_loss",
    "discriminator_loss",
    "fqe_loss",
    "fraction_gradient",
    "frozen",
    "gail_reward",
    "gaussian_nll",
    "gumbel_rescale_loss",
    "iql_loss",
    "lambda_returns",
    "project_atoms",
    "quantile_huber_loss",
    "sac_actor_loss",
    "smoothed_actions",
    "td3_bc_loss",
    "temperature_loss",
    "xql_loss",
    "xql_value_loss",
]
