"""Estimates of policies with MultiDiscrete actions, on decisions of one step whose values are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import BC
from rl_training.data import TransitionDataset, save_npz
from rl_training.experiment.ope import evaluate_policy_offline, rank_policies, unseen_action_fraction
from rl_training.experiment.ope.policies import PolicyActions
from rl_training.experiment.ope.probabilities import behaviour_log_probs, policy_log_probs
from rl_training.types import Action

SIZES = (3, 2)


class Always:
    """Takes one action in every state."""

    def __init__(self, *choices: int) -> None:
        self.choices = torch.tensor(choices)

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(self.choices.expand(len(obs), -1))


def decisions(actions: np.ndarray, obs: np.ndarray, **more: np.ndarray) -> TransitionDataset:
    """One step each: the first choice is worth its number, the second one ten times its number."""
    rewards = (actions * [1, 10]).sum(1).astype(np.float32)
    rows = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": obs, "dones": np.ones(len(obs))}
    return TransitionDataset.from_dict({**rows, **more})


@pytest.fixture(scope="module")
def uniform() -> TransitionDataset:
    rng = np.random.default_rng(0)
    actions, obs = rng.integers(SIZES, size=(3_000, 2)), rng.normal(size=(3_000, 1)).astype(np.float32)
    return decisions(actions, obs, action_prob=np.full(3_000, 1 / 6))


@pytest.mark.parametrize("choices", [(2, 0), (0, 1)])
def test_fitted_q_evaluation_values_each_choice(uniform, choices):
    found = evaluate_policy_offline(Always(*choices), uniform, updates=250, members=3, device="cpu")
    assert found.estimate == pytest.approx(choices[0] + 10 * choices[1], abs=0.5)
    assert found.behaviour_return == pytest.approx(6, abs=0.5)


def test_a_deterministic_policy_agrees_with_the_data_where_all_choices_do(uniform):
    found = policy_log_probs(PolicyActions(Always(2, 0), None, 0), uniform)
    agrees = (uniform.columns["actions"] == torch.tensor([2, 0])).all(1)
    assert 400 < agrees.sum() < 600
    assert found.tolist() == torch.where(agrees, 0.0, -torch.inf).tolist()


def test_a_cloned_behaviour_has_the_probabilities_of_both_choices(uniform):
    logged = behaviour_log_probs(uniform, 0)
    assert not logged.cloned
    assert logged.log_probs.unique().tolist() == pytest.approx([-math.log(6)])
    rows = {name: column for name, column in uniform.columns.items() if name != "action_prob"}
    cloned = behaviour_log_probs(TransitionDataset(rows, spec=uniform.spec), 0)
    assert cloned.cloned
    assert cloned.log_probs.mean().item() == pytest.approx(-math.log(6), abs=0.1)


def test_every_estimator_finds_the_value_of_a_cloned_policy(uniform, tmp_path: Path):
    obs = uniform.columns["obs"].numpy()
    shown = np.stack([np.where(obs[:, 0] > 0, 2, 0), np.ones(len(obs), int)], 1)  # worth 12 or 10
    data = tmp_path / "shown.npz"
    save_npz(TransitionDataset(decisions(shown, obs).columns, spec=uniform.spec), data)
    options: dict[str, Any] = {"learning_rate": 0.01, "hidden_sizes": [32], "batch_size": 64}
    agent = BC(dataset=str(data), total_timesteps=300, output_dir=str(tmp_path / "run"), **options).learn()
    assert agent.predict([[2.0], [-2.0]]).tolist() == [[2, 1], [0, 1]]
    (found,) = rank_policies([tmp_path / "run"], uniform, updates=250, members=3, device="cpu")
    expected = 10 + 2 * float((obs > 0).mean())
    assert {name: each.estimate for name, each in found.estimates.items()} == {
        name: pytest.approx(expected, abs=0.5) for name in ("fqe", "wis", "dr")
    }


def test_an_action_is_unseen_if_one_of_its_choices_is():
    obs = torch.rand(1_000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    actions = torch.stack([(obs[:, 0] > 0).long(), torch.zeros(1_000, dtype=torch.int64)], 1)
    other = actions[:300] + torch.tensor([0, 1])
    assert unseen_action_fraction(obs, actions, actions[:300]) <= 0.05
    assert unseen_action_fraction(obs, actions, other) == 1
