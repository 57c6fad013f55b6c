"""A small PPO agent on CartPole, trained once for each file of tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rl_training import PPO

sys.path.insert(0, str(Path(__file__).parent))
from tiny_options import TINY  # type: ignore[import-not-found]

sys.path.pop(0)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    return PPO("CartPole-v1", output_dir=str(tmp_path_factory.mktemp("runs") / "ppo"), **TINY).learn()
