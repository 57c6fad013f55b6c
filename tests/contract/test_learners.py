"""Learners: updates, state, actions, target networks and options, for every algorithm of the catalogue."""

from __future__ import annotations

import copy

import pytest
import torch

from rl_training.algorithms import Learner
from rl_training.types import EnvSpec


def test_updates_move_every_trained_tensor_and_keep_metrics_finite(case):
    learner = case.build()
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    batch = case.batch(learner)
    results = [learner.update(batch, global_step=step) for step in range(3)]
    unmoved = [name for name, value in learner.named_parameters() if value.requires_grad and value.equal(before[name])]
    assert unmoved == []
    assert all(value.isfinite().all() for result in results for value in result.metrics.values())
    assert results[-1].num_gradient_steps == 1


def test_state_round_trips_into_another_learner(case, goes_on_alike):
    learner, other = case.build(), case.build(seed=7)
    goes_on_alike(learner, other, case.batch(learner))


def test_actions_stay_in_bounds(case):
    learner = case.build()
    actions = learner.act(100 * torch.randn(64, *case.spec.obs_shape)).actions
    if case.kind == "box":
        assert actions.shape == (64, case.spec.action_dim)
        assert actions.abs().max() <= 1
        return
    assert actions.shape == ((64,) if case.kind == "discrete" else (64, case.spec.action_dim))
    sizes = case.spec.action_sizes or (case.spec.action_dim,)
    for choices, size in zip(actions.view(64, -1).unbind(1), sizes, strict=True):
        assert set(choices.tolist()) <= set(range(size))


def test_deterministic_actions_repeat_and_draw_nothing(case):
    learner, obs = case.build(), torch.randn(8, *case.spec.obs_shape)
    noise = torch.get_rng_state()
    assert learner.act(obs, deterministic=True).actions.equal(learner.act(obs, deterministic=True).actions)
    assert torch.get_rng_state().equal(noise)


def test_exploration_draws_from_its_own_generator_alone(case):
    learner, obs = case.build(), torch.randn(8, *case.spec.obs_shape)
    noise = torch.get_rng_state()
    draws = [learner.act(obs, generator=torch.Generator().manual_seed(3)).actions for _ in range(2)]
    assert draws[0].equal(draws[1])
    assert torch.get_rng_state().equal(noise)


def test_targets_start_as_copies_and_are_not_trained(case):
    learner = case.build()
    for part in learner.targets:
        copied = dict(learner.target[part].named_parameters())
        assert all(value.equal(copied[name]) for name, value in getattr(learner.model, part).named_parameters())
        assert not any(value.requires_grad for value in copied.values())


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


@pytest.mark.parametrize("option", ["learning_rate", "batch_size"])
def test_a_bad_option_is_refused_by_name(case, option):
    with pytest.raises(ValueError, match=option):
        case.learner.config_type(**{option: 0})


def test_a_misspelt_option_is_refused(case):
    with pytest.raises(ValueError, match="learning_rat"):
        case.learner.config_type(learning_rat=0.1)
