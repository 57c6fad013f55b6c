"""Discrete actions from data on the command line: fine-tuning, probabilities, export and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

OBS = "[[0, 0, 0.1, 0], [0, 0, -0.1, 0.5], [1, 1, 0, 0]]"


@pytest.fixture(scope="module")
def tuned(cli, tmp_path_factory) -> Path:
    """Discrete IQL that learned from random CartPole data, and then online."""
    run: Path = tmp_path_factory.mktemp("runs") / "iql"
    sizes = ["--set", "hidden_sizes=[8]", "--set", "batch_size=8", "--set", "eval_interval=0"]
    trained = cli("train", "iql/cartpole", "--steps", 20, "--online-steps", 20, *sizes, "--output", run, "--quiet")
    assert trained.exit_code == 0, trained.stderr
    return run


def test_predict_prints_the_probability_of_each_action(cli, tuned):
    found: dict[str, Any] = json.loads(cli("predict", tuned, "--obs", OBS, "--probabilities", "--json").stdout)
    probabilities = np.asarray(found["probabilities"])
    assert probabilities.shape == (3, 2)
    assert probabilities.sum(-1) == pytest.approx(1)
    assert probabilities.argmax(-1).tolist() == found["actions"]
    printed = cli("predict", tuned, "--obs", "[0, 0, 0.1, 0]", "--probabilities").stdout
    assert json.loads(printed)["probabilities"] == pytest.approx(probabilities[0].tolist())


def test_sampled_actions_follow_these_probabilities(cli, tuned):
    many = str([[0, 0, 0.1, 0]] * 2000)
    found = json.loads(cli("predict", tuned, "--obs", many, "--stochastic", "--probabilities", "--json").stdout)
    assert np.mean(found["actions"]) == pytest.approx(found["probabilities"][0][1], abs=0.05)


def test_a_policy_without_probabilities_is_refused_in_a_sentence(cli, tuned, pendulum):
    refused = cli("predict", pendulum, "--obs", "[0, 0, 0]", "--probabilities")
    assert refused.exit_code == 2
    assert "bc has no action probabilities here; they are for Discrete or MultiDiscrete" in refused.stderr
    assert "leave out --episode" in cli("predict", tuned, "--obs", OBS, "--probabilities", "--episode").stderr


def test_an_exported_policy_has_the_logits(cli, tuned, tmp_path):
    exported = cli("export", tuned, "--out", tmp_path / "policy.pt2")
    assert exported.exit_code == 0, exported.stderr
    assert "logits" in (tmp_path / "policy.json").read_text(encoding="utf-8")


def test_the_spaces_and_the_weight_of_each_are_listed(cli):
    assert "auto: 5 for Box, 1 for Discrete actions" in " ".join(cli("explain", "cql").stdout.split())
    rows = {line.split()[0]: line for line in cli("algos").stdout.splitlines() if line.strip()}
    assert all("Discrete" in rows[name] for name in ("bc", "bcq", "cql", "iql", "xql"))
