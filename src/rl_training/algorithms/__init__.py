"""The catalogue: one import and one row an algorithm. The registry, the API and the command line read it."""

from __future__ import annotations

from rl_training.algorithms.bc import BC, BCConfig, bc_loss
from rl_training.algorithms.cal_ql import CalQL, cal_ql_loss
from rl_training.algorithms.config import AlgorithmConfig, OfflineConfig, ReplayConfig, RolloutConfig
from rl_training.algorithms.cql import CQL, CQLConfig, CQLPredictions, cql_loss
from rl_training.algorithms.dqn import DQN, DQNConfig
from rl_training.algorithms.fqe import FQE, FQEConfig, fqe_loss
from rl_training.algorithms.iql import IQL, IQLConfig, IQLPredictions, iql_loss
from rl_training.algorithms.learner import Learner, OfflineLearner, frozen
from rl_training.algorithms.ppo import PPO, PPOConfig
from rl_training.algorithms.sac import SAC, SACConfig
from rl_training.algorithms.td3_bc import TD3BC, TD3BCConfig, td3_bc_loss
from rl_training.algorithms.updater import Updater
from rl_training.algorithms.xql import XQL, XQLConfig, gumbel_rescale_loss, xql_loss, xql_value_loss

BCAlgorithm, DQNAlgorithm, IQLAlgorithm, PPOAlgorithm, SACAlgorithm = BC, DQN, IQL, PPO, SAC
CalQLAlgorithm, CQLAlgorithm, TD3BCAlgorithm, XQLAlgorithm = CalQL, CQL, TD3BC, XQL

_LEARNERS: tuple[type[Learner], ...] = (BC, CalQL, CQL, DQN, IQL, PPO, SAC, TD3BC, XQL)
CATALOGUE: dict[str, type[Learner]] = {learner.name: learner for learner in _LEARNERS}

__all__ = [
    "BC",
    "CATALOGUE",
    "CQL",
    "DQN",
    "FQE",
    "IQL",
    "PPO",
    "SAC",
    "TD3BC",
    "XQL",
    "AlgorithmConfig",
    "BCAlgorithm",
    "BCConfig",
    "CQLAlgorithm",
    "CQLConfig",
    "CQLPredictions",
    "CalQL",
    "CalQLAlgorithm",
    "DQNAlgorithm",
    "DQNConfig",
    "FQEConfig",
    "IQLAlgorithm",
    "IQLConfig",
    "IQLPredictions",
    "Learner",
    "OfflineConfig",
    "OfflineLearner",
    "PPOAlgorithm",
    "PPOConfig",
    "ReplayConfig",
    "RolloutConfig",
    "SACAlgorithm",
    "SACConfig",
    "TD3BCAlgorithm",
    "TD3BCConfig",
    "Updater",
    "XQLAlgorithm",
    "XQLConfig",
    "bc_loss",
    "cal_ql_loss",
    "cql_loss",
    "fqe_loss",
    "frozen",
    "gumbel_rescale_loss",
    "iql_loss",
    "td3_bc_loss",
    "xql_loss",
    "xql_value_loss",
]
