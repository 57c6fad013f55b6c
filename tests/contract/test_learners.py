"""Learners: updates, state, actions, target networks and options, for every algorithm of the catalogue."""

from __future__ import annotations

import copy

import pytest
import torch

from rl_training.algorithms import Learner
from rl_training.testing import checks
from rl_training.types import EnvSpec


def test_updates_move_every_trained_tensor_and_keep_metrics_finite(case):
    checks.check_updates(case)


def test_state_round_trips_into_another_learner(case):
    checks.check_state(case)


def test_actions_stay_in_bounds(case):
    checks.check_actions(case)


def test_actions_draw_from_their_own_generator_alone_and_deterministic_ones_draw_nothing(case):
    checks.check_random_streams(case)


def test_targets_start_as_copies_and_are_not_trained(case):
    checks.check_targets(case)


def test_pixels_are_accepted_where_declared(row):
    if not row.learner.takes_pixels:
        pytest.skip("takes vectors only")
    spec = EnvSpec((1, 64, 64), "discrete", 3, obs_dtype="uint8")
    learner = row.learner.build(spec, **row.small_options)
    assert learner.act(torch.zeros(2, *spec.obs_shape, dtype=torch.uint8)).actions.shape == (2,)


@pytest.fixture
def normalising(case) -> Learner:
    if "normalize_obs" not in case.learner.config_type.model_fields:
        pytest.skip("has no option normalize_obs")
    found: Learner = case.build(normalize_obs=True)
    return found


def test_the_policy_reads_normalised_observations(case, normalising):
    obs = 3 + 5 * torch.randn(200, *case.spec.obs_shape, generator=torch.Generator().manual_seed(1))
    normalising.normalizer.fit(obs)
    normalised = normalising.normalizer(obs)
    torch.testing.assert_close(normalised.mean(0), torch.zeros_like(normalised[0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(normalised.std(0, unbiased=False), torch.ones_like(normalised[0]), atol=1e-3, rtol=0)
    plain = case.build(normalize_obs=False)
    plain.load_state_dict(normalising.state_dict(), strict=False)
    expected = plain.act(normalised, deterministic=True).actions
    torch.testing.assert_close(normalising.act(obs, deterministic=True).actions, expected)


def test_the_loss_reads_normalised_observations(case, normalising):
    batch = case.batch(normalising)  # which fits the statistics, or adds to them
    normalizer = copy.deepcopy(normalising.normalizer)
    normalised = {name: normalizer(batch[name]) for name in ("obs", "next_obs") if name in batch}
    assert not normalised["obs"].allclose(batch["obs"])
    if case.learner.lane == "rollout":  # observations are normalised when a rollout is prepared
        torch.testing.assert_close(case.batch(normalising)["obs"], normalised["obs"])
        return
    plain = case.build(normalize_obs=False)
    plain.load_state_dict(normalising.state_dict(), strict=False)
    for phase in (name for name in plain.phases(1) if name != "targets"):
        torch.manual_seed(1)
        expected = plain({**batch, **normalised}, phase).total
        torch.manual_seed(1)
        torch.testing.assert_close(normalising(batch, phase).total, expected)


def test_the_parts_of_a_loss_add_up_and_train_different_parameters(case):
    learner = case.build()
    if not learner.parts:
        pytest.skip("has a loss of one part")
    batch, trained = case.batch(learner), set[str]()
    torch.manual_seed(1)
    losses = [learner(batch, part) for part in learner.parts]
    torch.manual_seed(1)
    torch.testing.assert_close(torch.stack([loss.total for loss in losses]).sum(), learner(batch).total)
    for loss in losses:
        learner.zero_grad()
        loss.total.backward()
        reached = {name for name, parameter in learner.named_parameters() if parameter.grad is not None}
        assert trained.isdisjoint(reached)
        trained |= reached
    assert trained == {name for name, parameter in learner.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("option", ["learning_rate", "batch_size"])
def test_a_bad_option_is_refused_by_name(case, option):
    with pytest.raises(ValueError, match=option):
        case.learner.config_type(**{option: 0})


def test_a_misspelt_option_is_refused(case):
    with pytest.raises(ValueError, match="learning_rat"):
        case.learner.config_type(learning_rat=0.1)
