"""Fixtures of the tests of exported policies and of modules of the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import modules
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


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Returns a function that writes a module into the current folder, which is new; it is not yet approved."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(modules, "_approved", set())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    written = []

    def write(name: str, code: str) -> Path:
        (tmp_path / f"{name}.py").write_text(code)
        written.append(name)
        return tmp_path

    yield write
    for name in written:
        sys.modules.pop(name, None)
