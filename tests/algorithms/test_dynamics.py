"""The dynamics ensemble: its likelihood, decay and bounds by hand, and what it draws."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rl_training.algorithms import Dynamics, ModelBasedConfig, Updater, gaussian_nll
from rl_training.algorithms.dynamics import RolloutSchedule, dynamics_targets, layer_decays

SMALL: dict[str, Any] = {"model_members": 3, "model_elites": 2, "model_hidden_sizes": (8,)}


def test_the_likelihood_is_a_mean_over_rows_and_outputs_and_a_sum_over_members():
    mean = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]])  # two members, one row, two outputs
    log_var = torch.tensor([[[0.0, math.log(2)]], [[math.log(4), 0.0]]])
    targets = torch.tensor([[3.0, 2.0]])
    first = (4 / 1 + 0 + 4 / 2 + math.log(2)) / 2
    second = (9 / 4 + math.log(4) + 4 / 1 + 0) / 2
    assert gaussian_nll(mean, log_var, targets).item() == pytest.approx(first + second)


def test_the_likelihood_is_least_where_the_variance_is_that_of_the_errors():
    errors = torch.tensor([1.0, -3.0]).view(1, 2, 1)  # mean square 5
    losses = [gaussian_nll(errors, torch.full((1, 2, 1), math.log(v)), torch.zeros(2, 1)).item() for v in (4.9, 5, 5.1)]
    assert losses[1] == min(losses)


def test_decay_grows_from_layer_to_layer():
    assert layer_decays(5, 2.5e-5) == pytest.approx([2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4])
    assert layer_decays(2, 1.0) == [1, 4]


def test_decay_and_bounds_are_terms_of_the_loss(box, draw):
    learner = Dynamics.build(box, **SMALL, model_weight_decay=0.1)
    with torch.no_grad():
        for layer, value in zip(learner.model.layers(), (1.0, 2.0), strict=True):
            layer.weight.fill_(value)
            layer.bias.fill_(100.0)  # which does not count
    terms = learner.loss(draw(box, 6)).terms
    first, last = 3 * 5 * 8, 3 * 8 * 9  # members, inputs, outputs: two of each of 4 numbers, and the termination
    assert terms["model_decay"].item() == pytest.approx(0.5 * 0.1 * first * 1 + 0.5 * 0.4 * last * 4, rel=1e-5)
    assert terms["model_bounds"].item() == pytest.approx(0.01 * 4 * 0.5 - 0.01 * 4 * -10)


def test_the_loss_names_what_users_plot(box, draw):
    loss = Dynamics.build(box, **SMALL).loss(draw(box, 6))
    assert {"mbpo_model_loss", "reward_mae"} <= {*loss.terms, *loss.metrics}


def test_the_loss_is_one_graph(box, draw):
    learner, batch = Dynamics.build(box, **SMALL), draw(box, 3, 6)
    compiled = torch.compile(learner.loss, fullgraph=True, backend="eager")(batch)
    torch.testing.assert_close(compiled.total, learner.loss(batch).total)


def test_the_reward_error_is_in_units_of_the_reward(box, draw):
    learner, batch = Dynamics.build(box, **SMALL), draw(box, 6)
    seen = learner.model(batch["obs"], batch["actions"]).mean[..., -1]
    expected = (seen - batch["rewards"]).abs().mean()
    torch.testing.assert_close(learner.loss(batch).metrics["reward_mae"], expected)


def test_targets_are_the_change_of_the_observation_and_the_reward():
    batch = {"obs": torch.tensor([[1.0, 2.0]]), "next_obs": torch.tensor([[1.5, 0.0]]), "rewards": torch.tensor([7.0])}
    assert dynamics_targets(batch).tolist() == [[0.5, -2.0, 7.0]]


def test_a_known_rule_takes_the_place_of_the_learned_termination(box, draw):
    learner = Dynamics.build(box, **SMALL)
    assert "termination_loss" in learner.loss(draw(box, 6)).terms
    learner.rule = lambda obs: obs[..., 0] > 0
    assert "termination_loss" not in learner.loss(draw(box, 6)).terms
    seen = learner.imagine(torch.randn(50, 3), torch.zeros(50, 2))
    assert seen.ended.equal(seen.next_obs[:, 0] > 0)


def test_rare_terminations_count_more_and_never_above_ten_times(box, draw):
    learner, batch = Dynamics.build(box, **SMALL), draw(box, 100)
    rarities = []
    for ended in (50, 20, 1, 0):
        learner.prepare({**batch, "dones": (torch.arange(100) < ended).float()})
        rarities.append(learner.rarity.item())
    assert rarities == [1, 4, 10, 10]


def test_only_elites_imagine(box):
    learner = Dynamics.build(box, **SMALL)
    with torch.no_grad():
        for layer in learner.model.layers():
            layer.weight.zero_()
        last = learner.model.layers()[-1]
        last.bias[:, 0, 3] = torch.tensor([1.0, 2.0, 3.0])  # each member foresees a reward of its own
        last.bias[:, 0, 4:] = -20.0  # and is sure of it
        learner.model.elites.copy_(torch.tensor([2, 0]))
    rewards = learner.imagine(torch.zeros(200, 3), torch.zeros(200, 2)).rewards.round()
    assert set(rewards.tolist()) == {1.0, 3.0}


def test_the_predicted_change_is_added_to_the_observation(box):
    learner, obs = Dynamics.build(box, **SMALL), torch.tensor([[1.0, 2.0, 3.0]])
    with torch.no_grad():
        for layer in learner.model.layers():
            layer.weight.zero_()
        learner.model.layers()[-1].bias[..., :3] = torch.tensor([0.5, 0.0, -1.0])
        learner.model.min_log_var.fill_(-40.0)
        learner.model.max_log_var.fill_(-30.0)  # so that steps have no noise
    seen = learner.imagine(obs, torch.zeros(1, 2))
    torch.testing.assert_close(seen.next_obs, torch.tensor([[1.5, 2.0, 2.0]]), atol=1e-4, rtol=0)


def test_a_model_step_takes_random_numbers_from_its_generator_alone(box):
    learner, steps = Dynamics.build(box, **SMALL), []
    with torch.no_grad():
        learner.model.layers()[-1].bias[:, 0, 3] = torch.tensor([1.0, 20.0, 300.0])  # so that members are told apart
    for seed in (0, 1):
        torch.manual_seed(seed)  # of the default generator
        steps.append(learner.imagine(torch.zeros(50, 3), torch.zeros(50, 2), torch.Generator().manual_seed(5)))
    assert steps[0].next_obs.equal(steps[1].next_obs)
    assert steps[0].rewards.equal(steps[1].rewards)
    assert steps[0].rewards.std() > 5


def test_a_learned_termination_is_one_that_is_more_likely_than_not(box):
    learner = Dynamics.build(box, **SMALL)
    with torch.no_grad():
        for layer in learner.model.layers():
            layer.weight.zero_()
        for logit, ended in ((-0.1, False), (0.1, True)):
            learner.model.layers()[-1].bias[..., -1] = logit
            assert learner.imagine(torch.zeros(5, 3), torch.zeros(5, 2)).ended.tolist() == [ended] * 5


def test_the_model_learns_at_its_own_rate(box):
    ((group, names),) = Updater([Dynamics.build(box, **SMALL, learning_rate=1e-5, model_learning_rate=2e-3)]).groups
    assert group.learning_rate == 2e-3
    assert "model.net.0.weight" in names


def test_terminations_are_weighted_by_their_rarity(box, draw):
    learner, rows = Dynamics.build(box, **SMALL), draw(box, 4)
    with torch.no_grad():
        for layer in learner.model.layers():
            layer.weight.zero_()  # a probability of a half everywhere
        learner.rarity.fill_(3.0)
    loss = learner.loss({**rows, "dones": torch.tensor([1.0, 0.0, 0.0, 0.0])}).terms["termination_loss"]
    assert loss.item() == pytest.approx(3 * math.log(2) * (3 + 1 + 1 + 1) / 4)  # three members


def test_imagined_steps_spread_as_wide_as_the_model_says(box):
    learner = Dynamics.build(box, **SMALL)
    with torch.no_grad():
        for layer in learner.model.layers():
            layer.weight.zero_()
    seen = learner.imagine(torch.zeros(20_000, 3), torch.zeros(20_000, 2), torch.Generator().manual_seed(0))
    expected = (0.5 * seen.prediction.log_var[0, 0]).exp()
    torch.testing.assert_close(seen.next_obs.std(0), expected[:3], rtol=0.05, atol=0)
    assert seen.rewards.std().item() == pytest.approx(expected[3].item(), rel=0.05)


def test_errors_do_not_depend_on_the_variance_or_on_units(box, draw):
    batch = draw(box, 50)
    learner = Dynamics.build(box, **SMALL, model_normalize_targets=True)
    learner.prepare(batch)
    errors = learner.errors(batch)
    far = {**batch, "rewards": 1000 * batch["rewards"]}
    learner.prepare(far)
    torch.testing.assert_close(learner.errors(far), errors, rtol=1e-3, atol=1e-4)
    assert errors.shape == (3,)


@pytest.mark.parametrize(
    ("step", "length"), [(0, 1), (20_000, 1), (29_285, 1), (29_286, 2), (85_000, 8), (149_999, 14), (150_000, 15)]
)
def test_rollouts_grow_by_whole_steps_between_the_two_ends(step, length):
    assert RolloutSchedule(20_000, 150_000, 1, 15).at(step) == length


def test_a_schedule_without_a_way_has_its_last_length():
    assert RolloutSchedule(0, 0, 1, 5).at(0) == 5
    assert RolloutSchedule(7, 7, 1, 5).at(6) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_elites": 8}, "model_elites must be at most model_members = 7"),
        ({"rollout_schedule": (10, 5, 1, 2)}, "rollout_schedule must not end before it starts"),
        ({"model_holdout": 0.0}, "model_holdout"),
        ({"real_ratio": 1.5}, "real_ratio"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        ModelBasedConfig(**options)
