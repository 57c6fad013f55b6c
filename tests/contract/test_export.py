"""Every algorithm's policy leaves the package unchanged, as torch.export and as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.experiment.agent import Agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.export.files import open_policy, write_policy
from rl_training.experiment.export.parity import TOLERANCE, Comparison, Parity
from rl_training.experiment.export.policy import ExportedPolicy


def exported(case, path: Path, steps: int = 3) -> Parity:
    """Compares the file with the learner over a few steps of five environments, the last of which is alone."""
    learner = case.build().eval()
    for name, buffer in learner.normalizer.named_buffers():
        buffer.copy_(torch.rand_like(buffer) + (0.5 if name == "std" else 0))
    write_policy(ExportedPolicy(learner, case.spec), path)
    agent = Agent(learner, case.spec, parse_config(case.config()), Path("checkpoint"))
    comparison, generator = Comparison(agent, open_policy(path)), torch.Generator().manual_seed(0)
    for rows in [5] * steps + [1]:
        if rows == 1:
            comparison.memory.forget()
        obs = torch.randn(rows, *case.spec.obs_shape, generator=generator)
        comparison.memory.keep(comparison.act(obs), torch.arange(rows) == 1)
    return comparison.result("random numbers", TOLERANCE)


EXPORTED: dict[tuple[Any, Any], str] = {}  # method and network of a policy -> the first algorithm with them


def test_a_torch_export_file_acts_as_the_learner(row, tmp_path):
    learner, name = row.build(), row.learner.name
    network = getattr(learner.model, "actor", None) or getattr(learner.model, "q", learner.model)
    if (first := EXPORTED.setdefault((type(learner).act, type(network)), name)) != name:
        pytest.skip(f"has the policy of {first}; as ONNX, make learn exports every algorithm")
    parity = exported(row, tmp_path / "policy.pt2")
    assert parity.errors
    assert parity.holds, parity
    assert parity.observations == 16


@pytest.mark.slow
def test_an_onnx_file_acts_as_the_learner(case, tmp_path):
    parity = exported(case, tmp_path / "policy.onnx")
    assert parity.errors
    assert parity.holds, parity


def test_a_torch_export_file_carries_the_memory(recurrent, tmp_path):
    parity = exported(recurrent, tmp_path / "policy.pt2")
    assert parity.holds, parity


@pytest.mark.slow
def test_an_onnx_file_carries_the_memory(recurrent, tmp_path):
    parity = exported(recurrent, tmp_path / "policy.onnx")
    assert parity.holds, parity
