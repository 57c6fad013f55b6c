"""Whether a policy stays with what the data did."""

from __future__ import annotations

import pytest
import torch

from rl_training.experiment.ope import unseen_action_fraction


@pytest.fixture
def obs() -> torch.Tensor:
    return torch.rand(2_000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1


def noise(rows: int) -> torch.Tensor:
    return torch.randn(rows, 1, generator=torch.Generator().manual_seed(1))


def test_the_datas_own_mean_is_at_home(obs):
    mean = obs[:, :1]
    assert unseen_action_fraction(obs, mean + 0.1 * noise(2_000), mean[:500]) < 0.05


def test_data_that_judge_themselves_are_ordinary(obs):
    actions = obs[:, :1] + 0.1 * noise(2_000)
    assert unseen_action_fraction(obs, actions, actions[:500]) == pytest.approx(0.05, abs=0.005)


def test_doing_the_opposite_in_each_state_is_unseen_although_every_action_occurs_somewhere(obs):
    actions = obs[:, :1].sign() + 0.1 * noise(2_000)
    assert unseen_action_fraction(obs, actions, -actions[:500]) > 0.9


def test_an_action_never_taken_is_unseen(obs):
    assert unseen_action_fraction(obs, 0.1 * noise(2_000), torch.ones(500, 1)) == 1


def test_discrete_actions_are_seen_where_similar_states_took_them(obs):
    actions = (obs[:, 0] > 0).long()
    assert unseen_action_fraction(obs, actions, actions[:500]) <= 0.05
    assert unseen_action_fraction(obs, actions, 1 - actions[:500]) > 0.8


@pytest.mark.parametrize("unit", [1_000.0, 1e-6])
def test_units_of_observations_do_not_count(obs, unit):
    actions = obs[:, :1] + 0.1 * noise(2_000)
    stretched = obs * torch.tensor([unit, 1.0])
    assert unseen_action_fraction(stretched, actions, obs[:500, :1]) == pytest.approx(
        unseen_action_fraction(obs, actions, obs[:500, :1]), abs=0.02
    )
