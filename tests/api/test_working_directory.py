"""Agents with a relative output directory after the script has changed its working directory."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import PPO

TINY: dict[str, Any] = {
    "num_steps": 8,
    "batch_size": 8,
    "epochs": 1,
    "hidden_sizes": [8],
    "eval_interval": 0,
    "output_dir": "run",
}


def weights(agent: PPO) -> torch.Tensor:
    return next(agent.agent.learner.parameters()).detach()


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """Two agents that were trained in equally named directories; the script now runs in the second one's folder."""
    agents = []
    for seed, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        agents.append(PPO("CartPole-v1", seed=seed, total_timesteps=16, **TINY).learn())
    return agents


def test_save_copies_the_weights_of_the_agent_and_not_of_a_run_of_the_same_name(two_runs):
    first, second = two_runs
    saved = PPO.load(first.save("saved"))
    assert torch.equal(weights(saved), weights(first))
    assert not torch.equal(weights(saved), weights(second))


def test_learn_continues_the_run_of_the_agent(two_runs, tmp_path):
    first, _ = two_runs
    first.learn(16)
    assert first.result.steps == 32
    assert [*Path("run/checkpoints").glob("*32")] == []
    assert first.result.run_dir == tmp_path / "a" / "run"


def test_a_loaded_agent_keeps_its_run(two_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "a")
    loaded = PPO.load("run")
    monkeypatch.chdir(tmp_path / "b")
    assert torch.equal(weights(PPO.load(loaded.save("saved"))), weights(two_runs[0]))


def test_the_result_has_the_directory_as_it_was_given(two_runs):
    assert two_runs[0].result.run_dir == Path("run")
