"""Action distributions against torch.distributions, numerical integration and counted samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import distributions

from rl_training.models.heads import (
    BoundedMeanPolicy,
    Categorical,
    DeterministicPolicy,
    Gaussian,
    MultiCategorical,
    MultiCategoricalPolicy,
    SquashedGaussian,
    SquashedPolicy,
)

HEADS = [
    Gaussian(torch.zeros(6, 2), torch.zeros(6, 2)),
    SquashedGaussian(torch.zeros(6, 2), torch.zeros(6, 2)),
    Categorical(torch.zeros(6, 5)),
    MultiCategorical((Categorical(torch.zeros(6, 5)), Categorical(torch.zeros(6, 2)))),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_gaussian_log_prob_and_entropy_are_those_of_independent_normals():
    mean, log_std, actions = torch.randn(3, 5, 2).unbind()
    oracle = distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)
    policy = Gaussian(mean, log_std)
    torch.testing.assert_close(policy.log_prob(actions), oracle.log_prob(actions))
    torch.testing.assert_close(policy.entropy(), oracle.entropy())


def test_one_log_std_vector_counts_for_every_row_of_the_entropy():
    policy = Gaussian(torch.zeros(4, 3), torch.zeros(3))
    assert policy.entropy().tolist() == pytest.approx([3 * 0.5 * math.log(2 * math.pi * math.e)] * 4)


def test_categorical_log_prob_and_entropy_are_those_of_softmax():
    logits, actions = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    oracle = distributions.Categorical(logits=logits)
    torch.testing.assert_close(Categorical(logits).log_prob(actions), oracle.log_prob(actions))
    torch.testing.assert_close(Categorical(logits).entropy(), oracle.entropy())


def test_independent_choices_multiply_their_probabilities_and_add_their_entropies():
    logits = torch.tensor([[math.log(1), math.log(3), 0.0, 0.0, 0.0]])  # 1/4 and 3/4; thrice 1/3
    policy = MultiCategoricalPolicy(torch.nn.Identity(), (2, 3))(logits)
    assert policy.log_prob(torch.tensor([[1, 2]])).exp().item() == pytest.approx(3 / 4 * 1 / 3)
    entropies = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), math.log(3)
    assert policy.entropy().item() == pytest.approx(sum(entropies))
    assert policy.mode().tolist() == [[1, 0]]


def test_choices_are_drawn_independently_and_as_often_as_softmax_says():
    logits = torch.tensor([math.log(1), math.log(3), 0.0, 0.0, 0.0]).expand(24_000, 5)
    first, second = MultiCategoricalPolicy(torch.nn.Identity(), (2, 3))(logits).sample().unbind(-1)
    counts = torch.bincount(3 * first + second, minlength=6)
    expected = torch.tensor([2_000.0] * 3 + [6_000.0] * 3)
    assert ((counts - expected).square() / expected).sum() < 20.5  # 0.999 quantile of chi-square, five degrees


def test_squashed_log_prob_is_that_of_a_normal_sent_through_tanh():
    mean, log_std, raw = 0.5 * torch.randn(3, 5, 2, dtype=torch.float64)
    normal = distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)
    oracle = distributions.TransformedDistribution(normal, [distributions.TanhTransform()])
    policy = SquashedGaussian(mean, log_std)
    torch.testing.assert_close(policy.log_prob(raw.tanh()), oracle.log_prob(raw.tanh()))
    torch.testing.assert_close(policy.raw_log_prob(raw), oracle.log_prob(raw.tanh()))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.8, -1.0), (-0.5, 0.5)])
def test_squashed_density_integrates_to_one(mean, log_std):
    actions = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1, None]
    policy = SquashedGaussian(torch.full_like(actions, mean), torch.full_like(actions, log_std))
    assert torch.trapezoid(policy.log_prob(actions).exp(), actions[:, 0]).item() == pytest.approx(1, abs=1e-3)


def test_squashed_log_prob_stays_finite_far_out_and_so_does_its_gradient():
    raw = torch.linspace(-20, 20, 81)[:, None].requires_grad_()
    log_prob = SquashedGaussian(torch.zeros(81, 1), torch.zeros(81, 1)).raw_log_prob(raw)
    (gradient,) = torch.autograd.grad(log_prob.sum(), raw)
    assert log_prob.isfinite().all()
    assert gradient.isfinite().all()
    # at u = 20: log N = -200 - log sqrt(2 pi), log(1 - tanh^2 u) = 2 log 2 - 40
    assert log_prob[-1].item() == pytest.approx(-200 - 0.918939 - (1.386294 - 40))


def test_squashed_log_prob_of_an_action_at_a_bound_is_that_of_one_just_inside():
    policy = SquashedGaussian(torch.zeros(2, 1), torch.zeros(2, 1))
    # atanh(1 - 1e-6) = 7.254: log N = -26.31 - 0.919, log(1 - a^2) = log 2e-6 = -13.12
    assert policy.log_prob(torch.tensor([[1.0], [-1.0]])).tolist() == pytest.approx([-14.1, -14.1], abs=0.3)


def test_the_drawn_log_prob_is_that_of_the_drawn_action():
    policy = SquashedGaussian(torch.randn(50, 2, dtype=torch.float64), torch.full((50, 2), -1.0, dtype=torch.float64))
    actions, log_prob = policy.sample_with_log_prob()
    assert actions.abs().max() < 1
    torch.testing.assert_close(policy.log_prob(actions), log_prob)


@pytest.mark.parametrize("policy", HEADS)
def test_a_private_generator_repeats_and_leaves_the_default_one_alone(policy):
    before = torch.get_rng_state()
    first, second = (policy.sample(torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_gaussian_samples_have_its_mean_and_deviation():
    draws = Gaussian(torch.full((40_000, 1), 3.0), torch.full((40_000, 1), math.log(0.5))).sample()
    assert draws.mean().item() == pytest.approx(3, abs=0.01)  # four standard errors of 0.5 / 200
    assert draws.std().item() == pytest.approx(0.5, abs=0.01)


def test_categorical_samples_come_as_often_as_softmax_says():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    counts = torch.bincount(Categorical(logits.expand(20_000, 4)).sample(), minlength=4)
    expected = 20_000 * logits.softmax(0)
    assert ((counts - expected).square() / expected).sum() < 16.27  # 0.999 quantile of chi-square, three degrees


def test_modes_are_the_likeliest_actions():
    assert Gaussian(torch.tensor([[2.0]]), torch.zeros(1, 1)).mode().item() == 2.0
    assert SquashedGaussian(torch.tensor([[2.0]]), torch.zeros(1, 1)).mode().item() == pytest.approx(math.tanh(2))
    assert Categorical(torch.tensor([[0.0, 3.0, 1.0]])).mode().item() == 1


@pytest.mark.parametrize("head", [Gaussian, SquashedGaussian])
def test_vmap_scores_each_member_and_draws_for_each_anew(head):
    mean, log_std, actions = (x.tanh() for x in torch.randn(3, 4, 5, 2).unbind())
    scores = torch.vmap(lambda m, s, a: head(m, s).log_prob(a))(mean, log_std, actions)
    torch.testing.assert_close(scores, head(mean, log_std).log_prob(actions))
    draws = torch.vmap(lambda m: head(m, m).sample(), randomness="different")(torch.zeros(4, 5, 2))
    assert draws.unique(dim=0).shape == (4, 5, 2)


def test_vmap_over_categoricals():
    logits = torch.randn(4, 5, 3)
    torch.testing.assert_close(torch.vmap(lambda x: Categorical(x).entropy())(logits), Categorical(logits).entropy())
    draws = torch.vmap(lambda x: Categorical(x).sample(), randomness="different")(torch.zeros(4, 64, 3))
    assert draws.unique(dim=0).shape == (4, 64)


def test_the_bounded_mean_policy_keeps_its_mean_in_the_box_and_shares_one_clamped_deviation():
    policy = BoundedMeanPolicy(3, 2, (8,))
    assert policy.log_std.tolist() == [0, 0]
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor([-9.0, 9.0]))
    seen = policy(100 * torch.randn(6, 3))
    assert seen.mean.abs().max() <= 1
    assert seen.log_std.tolist() == [[-5.0, 2.0]] * 6


def test_the_deterministic_policy_is_bounded_by_tanh():
    policy, obs = DeterministicPolicy(3, 2, (8,)), torch.randn(6, 3)
    torch.testing.assert_close(policy(obs).mode(), policy.net(obs).tanh())
    assert policy(1000 * obs).mode().abs().max() <= 1


def test_the_squashed_policy_clamps_its_deviations():
    log_std = SquashedPolicy(3, 2, (8,))(1e4 * torch.randn(50, 3)).log_std
    assert (log_std.min().item(), log_std.max().item()) == (-20, 2)
