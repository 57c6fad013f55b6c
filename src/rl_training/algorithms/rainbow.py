"""Rainbow (Hessel et al., 2018): C51 with double choice, dueling and noisy networks, three steps and priorities."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from rl_training.algorithms.c51 import C51Algorithm, C51Config
from rl_training.algorithms.core.config import Fraction


class RainbowConfig(C51Config):
    """The same options as the rest of the family, all on."""

    double: bool = Field(True, description="the online network chooses the next action, the target network values it")
    dueling: bool = Field(True, description="split returns into those of the state and those of each action")
    noisy: bool = Field(True, description="explore by noise in the last layers' weights, and not by epsilon")
    n_step: PositiveInt = Field(3, description="rewards summed in a target before the next value is taken")
    prioritized: bool = Field(True, description="draw rows by how wrong they were, weighed to make up for it")
    priority_alpha: Fraction = Field(0.5, description="exponent of priorities; 0 draws evenly")


class RainbowAlgorithm(C51Algorithm):
    name = "rainbow"
    config_type = RainbowConfig
