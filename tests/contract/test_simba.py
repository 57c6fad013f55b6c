"""Runs with SimBa networks: the running statistics of observations are kept by every seed, saved, resumed and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import ReplayBuffer
from rl_training.experiment.agent import load_agent
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.run import run_training
from rl_training.runtime.engine import train
from rl_training.testing import AlgorithmCase, checks

SIMBA = {"kind": "simba", "hidden_sizes": [8], "critic_hidden_sizes": [8, 8]}


@pytest.fixture
def sac(all_rows) -> AlgorithmCase:
    return with_simba(all_rows["sac"], buffer_size=1000)


def with_simba(case: AlgorithmCase, **options: Any) -> AlgorithmCase:
    return replace(case, own_options={"network": SIMBA, "weight_decay": 0.01, **options})


def test_a_loaded_agent_predicts_what_the_trained_one_does(sac, tmp_path):
    checks.check_saved_agent(sac, tmp_path)


def statistics(obs: Any) -> list[Any]:
    rows = np.asarray(obs, np.float64).reshape(-1, np.shape(obs)[-1])
    return [rows.mean(0), rows.std(0), len(rows)]


def assert_statistics(normalizer: Any, obs: Any) -> None:
    for found, expected in zip((normalizer.mean, normalizer.std, normalizer.count), statistics(obs), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changes", [
    {}, {"num_envs": 3}, {"num_envs": 4, "env_backend": "device", "env_kwargs": {}},
    {"num_envs": 2, "overlap_updates": "on"},
], ids=["one", "three", "device", "overlap"])  # fmt: skip
def test_the_statistics_are_those_of_every_observation_acted_on(sac, changes):
    state, (part,) = assembled([sac.config(**changes)])
    train(state)
    replay: ReplayBuffer = state.lane.source
    assert replay.added >= 60
    assert_statistics(part.learner.normalizer, replay.columns["obs"][: replay.added])
    part.close()


def test_every_member_of_a_population_has_statistics_of_its_own(sac, tmp_path):
    state, parts = assembled([sac.config(seed=seed, num_envs=2) for seed in range(3)])
    train(state)
    replay: ReplayBuffer = state.lane.source
    for number, part in enumerate(parts):
        assert_statistics(part.learner.normalizer, replay.rows(0, replay.added, member=number)["obs"])
    means = {tuple(part.learner.normalizer.mean.tolist()) for part in parts}
    assert len(means) == 3
    for part in parts:
        part.close()


def assembled(configs: list[dict[str, Any]]) -> Any:
    parsed = [parse_config(values) for values in configs]
    return assemble(parsed, choose(parsed[0]), 60)


@pytest.fixture(scope="module")
def trained(all_rows, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("simba")
    return run_training(parse_config(with_simba(all_rows["sac"]).config(output_dir=str(folder)))).run_dir


def test_actions_are_those_of_the_networks_for_standardised_observations(trained):
    agent = load_agent(trained)
    obs = np.array([[0.3, -0.8, 4.0], [1.0, 0.1, -2.0]], np.float32)
    statistics: Any = agent.learner.normalizer
    assert statistics.count == 60
    standardised = (torch.from_numpy(obs) - statistics.mean) / statistics.std
    expected = 2 * agent.learner.model.actor(standardised).mode()  # Pendulum's actions are within 2
    np.testing.assert_allclose(agent.predict(obs), expected.detach(), rtol=1e-5, atol=1e-6)


def test_evaluation_uses_the_statistics_and_leaves_them_as_they_are(trained):
    agent = load_agent(trained)
    before = {name: value.clone() for name, value in agent.learner.normalizer.named_buffers()}
    score = agent.evaluate(2, seed=0)["return_mean"]
    assert all(value.equal(before[name]) for name, value in agent.learner.normalizer.named_buffers())
    with torch.no_grad():
        agent.learner.normalizer.get_buffer("mean").add_(5)
    assert agent.evaluate(2, seed=0)["return_mean"] != score
