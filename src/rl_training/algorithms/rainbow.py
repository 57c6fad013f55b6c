"""Rainbow (Hessel et al., 2018, arXiv:1710.02298): C51 with double, dueling, noisy, 3-step and prioritised replay."""

from pydantic import Field, PositiveInt

from rl_training.algorithms.c51 import C51Algorithm, C51Config
from rl_training.algorithms.core.config import Fraction


class RainbowConfig(C51Config):
    double: bool = Field(True, description="double Q-learning: the online network selects the next action")
    dueling: bool = Field(True, description="dueling network: state value plus advantages")
    noisy: bool = Field(True, description="explore with noisy layers instead of epsilon-greedy")
    n_step: PositiveInt = Field(3, description="steps of the n-step return")
    prioritized: bool = Field(True, description="prioritised replay with importance weights")
    priority_alpha: Fraction = Field(0.5, description="priority exponent; 0: uniform sampling")


class RainbowAlgorithm(C51Algorithm):
    name = "rainbow"
    config_type = RainbowConfig
