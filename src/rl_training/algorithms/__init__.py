"""The catalogue: one import and one row an algorithm. The registry, the API and the command line read it."""

from __future__ import annotations

from rl_training.algorithms.bc import BC, BCConfig, bc_loss
from rl_training.algorithms.config import AlgorithmConfig, OfflineConfig, ReplayConfig, RolloutConfig
from rl_training.algorithms.dqn import DQN, DQNConfig
from rl_training.algorithms.iql import IQL, IQLConfig, IQLPredictions, iql_loss
from rl_training.algorithms.learner import Learner, OfflineLearner, frozen
from rl_training.algorithms.ppo import PPO, PPOConfig
from rl_training.algorithms.sac import SAC, SACConfig
from rl_training.algorithms.updater import Updater

BCAlgorithm, DQNAlgorithm, IQLAlgorithm, PPOAlgorithm, SACAlgorithm = BC, DQN, IQL, PPO, SAC

CATALOGUE: dict[str, type[Learner]] = {learner.name: learner for learner in (BC, DQN, IQL, PPO, SAC)}

__all__ = [
    "BC",
    "CATALOGUE",
    "DQN",
    "IQL",
    "PPO",
    "SAC",
    "AlgorithmConfig",
    "BCAlgorithm",
    "BCConfig",
    "DQNAlgorithm",
    "DQNConfig",
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
    "Updater",
    "bc_loss",
    "frozen",
    "iql_loss",
]
