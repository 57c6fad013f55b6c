"""A run directory written by an earlier version can be evaluated and resumed."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rl_training.experiment.agent import find_checkpoint, load_agent
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.run import resume_run
from rl_training.experiment.run_directory import RunDirectory

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@pytest.fixture
def old_run(tmp_path):
    """DQN on CartPole-v1, trained for 300 steps."""
    return Path(shutil.copytree(FIXTURES / "dqn_run", tmp_path / "run"))


def test_the_config_of_an_old_run_parses(old_run):
    config = RunDirectory(old_run).config()
    assert config is not None
    assert (config.algo, config.env_id, config.total_timesteps) == ("dqn", "CartPole-v1", 300)
    assert config.algo_kwargs["hidden_sizes"] == [8]


def test_the_checkpoint_of_an_old_run_is_found_and_intact(old_run):
    checkpoint = find_checkpoint(old_run)
    assert (checkpoint.path.name, checkpoint.step) == ("step_000000300", 300)


def test_an_old_run_is_evaluated_with_the_same_returns(old_run):
    assert load_agent(old_run).evaluate(3)["returns"] == [24.0, 27.0, 24.0]


def test_an_old_run_is_resumed_to_the_same_weights(old_run):
    result = resume_run(old_run, steps=500)
    assert (result.status, result.steps) == ("finished", 500)
    weights = load_file(find_checkpoint(old_run).path / "learner.safetensors")
    expected = load_file(FIXTURES / "dqn_run_at_500.safetensors")
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-6, atol=1e-6)


def test_the_default_of_env_workers_in_an_old_run_is_no_difference(old_run):
    stored = RunDirectory(old_run).config()
    assert stored is not None
    assert stored.env_workers == 0
    now = stored.model_copy(update={"env_workers": "auto"})
    RunDirectory(old_run).check(now)
    with pytest.raises(ConfigError, match="env_workers: 0 there, 2 here"):
        RunDirectory(old_run).check(stored.model_copy(update={"env_workers": 2}))
