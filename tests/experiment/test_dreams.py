"""Reconstructions and predictions of a world model, compared with the observed frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.experiment.agent import Agent, load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.dreams import Dreams, dream
from rl_training.experiment.run import run_training


def trained(folder: Path, env_id: str = "Catch-v0", algo: str = "dreamer", **options: Any) -> Agent:
    """An agent after its first steps."""
    config = {"algo": algo, "env_id": env_id, "total_timesteps": 24, "eval_interval": 0, "checkpoint_interval": 24}
    values = {**config, "algo_kwargs": options, "output_dir": str(folder)}
    return load_agent(run_training(parse_config(values)).run_dir)


@pytest.fixture(scope="module")
def agent(tmp_path_factory) -> Agent:
    small: Any = {"size": "tiny", "window": 4, "batch_size": 2, "horizon": 2, "learning_starts": 8, "train_ratio": 1}
    return trained(tmp_path_factory.mktemp("catch"), **small)


@pytest.fixture(scope="module")
def dreams(agent) -> Dreams:
    return dream(agent, context=4, steps=20, episodes=5)


def test_the_truth_holds_whole_episodes(dreams):
    assert dreams.truth.shape == (5, 10, 1, 16, 16)  # an episode has ten frames, fewer than requested
    rows = dreams.truth[:, :9, 0, 3:12].amax(-1)  # above the paddle
    torch.testing.assert_close(rows, torch.eye(9).expand(5, 9, 9))  # one row lower at each step


def test_the_context_is_reconstructed_and_the_rest_is_predicted(dreams):
    assert dreams.prediction[:, :4].equal(dreams.reconstruction[:, :4])
    assert not dreams.prediction[:, 4:].equal(dreams.reconstruction[:, 4:])


def test_errors_are_per_pixel_and_after_the_context(dreams):
    future, last = dreams.truth[:, 4:], dreams.truth[:, 3:4]
    assert dreams.error == pytest.approx(float((dreams.prediction[:, 4:] - future).square().mean()), rel=1e-4)
    assert dreams.copy_error == pytest.approx(float((last - future).square().mean()), rel=1e-4)
    reconstruction = dreams.reconstruction[:, 4:]
    assert dreams.reconstruction_error == pytest.approx(float((reconstruction - future).square().mean()), rel=1e-4)
    assert dreams.summary["of_copy_last"] == pytest.approx(dreams.error / dreams.copy_error)


def test_dreams_are_reproducible_and_keep_the_default_generator(agent):
    noise = torch.get_rng_state()
    first, again, other = (dream(agent, episodes=2, steps=2, seed=seed) for seed in (3, 3, 4))
    assert first.prediction.equal(again.prediction)
    assert not first.prediction.equal(other.prediction)
    assert torch.get_rng_state().equal(noise)


def test_invalid_requests_are_refused(agent, tmp_path):
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        dream(agent, steps=0)
    with pytest.raises(ValueError, match="no episode is longer than the context of 30 frames"):
        dream(agent, context=30, episodes=2)
    with pytest.raises(ValueError, match="dqn has no world model; use a dreamer agent"):
        dream(trained(tmp_path / "dqn", algo="dqn", hidden_sizes=[8], buffer_size=100))
    with pytest.raises(ValueError, match="dreams need image observations, but CartPole-v1 has vectors"):
        dream(trained(tmp_path / "vectors", "CartPole-v1", size="tiny"))
