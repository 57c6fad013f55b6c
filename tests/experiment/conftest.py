"""Fixtures of the tests of exported policies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.algorithms import CATALOGUE
from rl_training.experiment.agent import Agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.types import EnvSpec


@pytest.fixture
def new_agent() -> Callable[..., Agent]:
    """Returns a function that builds an untrained agent."""

    def build(algo: str, spec: EnvSpec, env_id: str | None = None, **options: Any) -> Agent:
        torch.manual_seed(0)
        learner = CATALOGUE[algo].build(spec, **options).eval()
        config = parse_config({"algo": algo, "env_id": env_id, "algo_kwargs": options})
        return Agent(learner, spec, config, Path("run/checkpoints/step_0"))

    return build
