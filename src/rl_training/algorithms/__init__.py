"""The catalogue: one import and one row an algorithm. The registry, the API and the command line read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rl_training.algorithms.bc import BCAlgorithm, BCConfig, bc_loss
from rl_training.algorithms.c51 import C51Algorithm, C51Config, categorical_divergence, project_atoms
from rl_training.algorithms.cal_ql import CalQLAlgorithm, CalQLConfig, cal_ql_loss
from rl_training.algorithms.core.config import (
    AlgorithmConfig,
    OfflineConfig,
    ReplayConfig,
    RolloutConfig,
    SequenceConfig,
)
from rl_training.algorithms.core.learner import Learner, OfflineLearner, frozen
from rl_training.algorithms.core.updater import Updater
from rl_training.algorithms.cql import CQLAlgorithm, CQLConfig, CQLPredictions, cql_loss
from rl_training.algorithms.dqn import DQNAlgorithm, DQNConfig
from rl_training.algorithms.dreamer import DreamerAlgorithm, DreamerConfig, lambda_returns
from rl_training.algorithms.dynamics import Dynamics, ModelBasedConfig, gaussian_nll
from rl_training.algorithms.fqe import FQE, FQEConfig, fqe_loss
from rl_training.algorithms.fqf import FQFAlgorithm, FQFConfig, fraction_gradient
from rl_training.algorithms.gail import (
    DiscriminatorConfig,
    GAILAlgorithm,
    GAILConfig,
    GAILDiscriminator,
    discriminator_loss,
    gail_reward,
)
from rl_training.algorithms.iql import IQLAlgorithm, IQLConfig, IQLPredictions, iql_loss
from rl_training.algorithms.iqn import IQNAlgorithm, IQNConfig
from rl_training.algorithms.mbpo import MBPOAlgorithm, MBPOConfig
from rl_training.algorithms.mopo import MOPOAlgorithm, MOPOConfig
from rl_training.algorithms.ppo import PPOAlgorithm, PPOConfig, clipped_surrogate
from rl_training.algorithms.qr_dqn import QRDQNAlgorithm, QRDQNConfig, quantile_huber_loss
from rl_training.algorithms.rainbow import RainbowAlgorithm, RainbowConfig
from rl_training.algorithms.redq import REDQAlgorithm, REDQConfig
from rl_training.algorithms.sac import SACAlgorithm, SACConfig, sac_actor_loss, temperature_loss
from rl_training.algorithms.td3 import TD3Algorithm, TD3Config, smoothed_actions
from rl_training.algorithms.td3_bc import TD3BCAlgorithm, TD3BCConfig, td3_bc_loss
from rl_training.algorithms.xql import XQLAlgorithm, XQLConfig, gumbel_rescale_loss, xql_loss, xql_value_loss

_LEARNERS: tuple[type[Learner], ...] = (
    BCAlgorithm,
    C51Algorithm,
    CQLAlgorithm,
    CalQLAlgorithm,
    DQNAlgorithm,
    DreamerAlgorithm,
    FQFAlgorithm,
    GAILAlgorithm,
    IQLAlgorithm,
    IQNAlgorithm,
    MBPOAlgorithm,
    MOPOAlgorithm,
    PPOAlgorithm,
    QRDQNAlgorithm,
    REDQAlgorithm,
    RainbowAlgorithm,
    SACAlgorithm,
    TD3Algorithm,
    TD3BCAlgorithm,
    XQLAlgorithm,
)
CATALOGUE: dict[str, type[Learner]] = {learner.name: learner for learner in _LEARNERS}

__all__ = [
    "CATALOGUE",
    "FQE",
    "AlgorithmConfig",
    "BCAlgorithm",
    "BCConfig",
    "C51Algorithm",
    "C51Config",
    "CQLAlgorithm",
    "CQLConfig",
    "CQLPredictions",
    "CalQLAlgorithm",
    "CalQLConfig",
    "DQNAlgorithm",
    "DQNConfig",
    "DiscriminatorConfig",
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

if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name: str) -> NoReturn:
        """Raise an error that names the successor of a removed name."""
        if globals().get(f"{name}Algorithm") in _LEARNERS:
            # ImportError: `from rl_training.algorithms import SAC` would replace the text of an AttributeError
            raise ImportError(
                f"rl_training.algorithms.{name} was removed. Use rl_training.{name} to train an agent, "
                f"or rl_training.algorithms.{name}Algorithm for the learner class."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
