"""Adversarial imitation: rewards and losses by hand, and a discriminator that sees both sources alike."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.algorithms import (
    GAILConfig,
    GAILDiscriminator,
    discriminator_loss,
    gail_reward,
)
from rl_training.algorithms.gail import DiscriminatorConfig
from rl_training.testing.checks import check_loaded_state
from rl_training.types import Batch, EnvSpec

FORMS = ["softplus", "log_d", "logit"]


def two_sources(spec: EnvSpec, rows: int = 64, apart: float = 2.0) -> Batch:
    """The expert's observations lie `apart` from the policy's; their actions are of one kind."""
    generator = torch.Generator().manual_seed(0)
    obs, expert = torch.randn(2, rows, *spec.obs_shape, generator=generator)
    if spec.action_kind == "box":
        actions, theirs = torch.rand(2, rows, spec.action_dim, generator=generator) * 2 - 1
    else:
        actions, theirs = torch.randint(spec.action_dim, (2, rows), generator=generator)
    return {"obs": obs, "actions": actions, "expert_obs": expert + apart, "expert_actions": theirs}


@pytest.mark.parametrize(
    ("form", "rewards"),
    [  # D is 1/2, 3/4 and 1/4
        ("softplus", [math.log(2), math.log(4), math.log(4 / 3)]),
        ("log_d", [-math.log(2), math.log(3 / 4), -math.log(4)]),
        ("logit", [0.0, math.log(3), -math.log(3)]),
    ],
)
def test_rewards_by_hand(form, rewards):
    logits = torch.tensor([0.0, math.log(3), -math.log(3)])
    torch.testing.assert_close(gail_reward(logits, form), torch.tensor(rewards))


@pytest.mark.parametrize("form", FORMS)
def test_what_looks_more_like_the_expert_pays_more_without_end(form):
    rewards = gail_reward(torch.linspace(-60, 60, 25), form)
    pays_more_at = rewards.diff() > 0
    assert pays_more_at[:11].all() or form == "softplus"  # which is as good as 0 far below
    assert pays_more_at[12:].all() or form == "log_d"  # which is as good as 0 far above
    assert (rewards.diff() >= 0).all()
    assert rewards.isfinite().all()


def test_softplus_is_never_negative_and_log_d_never_positive():
    logits = torch.linspace(-30, 30, 13)
    assert (gail_reward(logits, "softplus") >= 0).all()
    assert (gail_reward(logits, "log_d") <= 0).all()


def test_the_expert_is_labelled_one_and_the_sources_count_alike():
    # D(expert) = 3/4, 1/4; D(policy) = 1/4. Means: (ln 4/3 + ln 4) / 2, and ln 4/3 though it is one row only.
    loss = discriminator_loss(torch.tensor([math.log(3), -math.log(3)]), torch.tensor([-math.log(3)]))
    by_hand = (math.log(4 / 3) + math.log(4)) / 2 + math.log(4 / 3)
    assert loss.terms["gail_discriminator_loss"].item() == pytest.approx(by_hand)
    assert loss.metrics["gail_expert_accuracy"].item() == 0.5
    assert loss.metrics["gail_policy_accuracy"].item() == 1.0


def test_weights_say_how_much_a_row_of_the_expert_counts():
    logits = torch.tensor([math.log(3), -math.log(3)])
    loss = discriminator_loss(logits, torch.tensor([0.0]), expert_weights=torch.tensor([1.0, 0.5]))
    by_hand = (math.log(4 / 3) + 0.5 * math.log(4)) / 1.5 + math.log(2)
    assert loss.terms["gail_discriminator_loss"].item() == pytest.approx(by_hand)


@pytest.mark.parametrize("kind", ["box", "discrete"])
def test_it_learns_to_tell_the_sources_apart(kind, box, discrete):
    spec = box if kind == "box" else discrete
    learner = GAILDiscriminator.build(spec, learning_rate=1e-2)
    batch = learner.prepare(two_sources(spec))
    for _ in range(60):
        metrics = learner.update(batch).metrics
    assert metrics["gail_expert_accuracy"] > 0.95
    assert metrics["gail_policy_accuracy"] > 0.95
    expert = gail_reward(learner.logits(batch["expert_obs"], batch["expert_actions"]))
    assert expert.mean() > 4 * gail_reward(learner.logits(batch["obs"], batch["actions"])).mean()


def test_both_sources_are_standardised_by_the_statistics_of_both(box):
    learner = GAILDiscriminator.build(box)
    batch = learner.prepare(two_sources(box, apart=4.0))
    together = torch.cat([batch["obs"], batch["expert_obs"]])
    torch.testing.assert_close(learner.normalizer.mean, together.mean(0))
    torch.testing.assert_close(learner.normalizer.std, together.std(0, unbiased=False))
    learner.model.net = torch.nn.Sequential(torch.nn.Linear(5, 1, bias=False))
    learner.model.net[0].weight.data = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]])  # it looks at one number alone
    same = torch.full((1, 3), 2.5), torch.zeros(1, 2)
    seen = learner.logits(*same)
    torch.testing.assert_close(seen, ((2.5 - together.mean(0)) / together.std(0, unbiased=False))[:1])
    loss = learner.loss({"obs": same[0], "actions": same[1], "expert_obs": same[0], "expert_actions": same[1]})
    by_hand = torch.nn.functional.softplus(-seen) + torch.nn.functional.softplus(seen)
    torch.testing.assert_close(loss.terms["gail_discriminator_loss"], by_hand[0])


def test_standardised_observations_are_clipped_to_ten(box):
    discriminator = GAILDiscriminator.build(box)
    discriminator.model.net = torch.nn.Sequential(torch.nn.Linear(5, 1, bias=False))
    discriminator.model.net[0].weight.data = torch.tensor([[1.0, 0.0, 0.0, 0.0, 0.0]])  # the first observation
    obs = torch.tensor([-50.0, -9.0, 9.0, 50.0]).unsqueeze(1).expand(4, 3)  # of mean 0 and std 1 so far
    assert discriminator.logits(obs, torch.zeros(4, 2)).tolist() == [-10, -9, 9, 10]


def test_the_gradient_penalty_pulls_slopes_to_one(box):
    learner = GAILDiscriminator.build(box, hidden_sizes=(), gradient_penalty=10.0)
    learner.model.net[0].weight.data = torch.tensor([[2.0, 1.0, 2.0, 0.0, 0.0]])  # of slope 3 everywhere
    loss = learner.loss(two_sources(box))
    assert loss.terms["gail_gradient_penalty"].item() == pytest.approx(10 * (3 - 1) ** 2)
    loss.terms["gail_gradient_penalty"].backward()
    # d/dw of 10 (|w| - 1)^2 = 20 (|w| - 1) w / |w|
    slopes = learner.model.net[0].weight.grad
    torch.testing.assert_close(slopes, 40 / 3 * torch.tensor([[2.0, 1.0, 2.0, 0.0, 0.0]]))


def test_the_gradient_penalty_is_taken_between_the_expert_and_the_policy(box, monkeypatch):
    learner = GAILDiscriminator.build(box, gradient_penalty=1.0)
    monkeypatch.setattr(
        learner.model, "logits", lambda inputs: inputs.square().sum(-1) / 2
    )  # its gradient is the input
    same = torch.tensor([[3.0, 4.0, 0.0, 0.0, 0.0]])
    assert learner.gradient_penalty(same, same).item() == pytest.approx((5 - 1) ** 2)
    between = [learner.gradient_penalty(same, -same).item() for _ in range(200)]  # a norm of 5 |2w - 1|
    assert 0 <= min(between) < 0.2
    assert 14 < max(between) <= 16


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_penalty": 1.0},
        *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"spectral_norm": True})),
    ],
    ids=str,
)
def test_the_compiled_loss_equals_the_eager_one(options, discrete):
    torch.compiler.reset()
    learner = GAILDiscriminator.build(discrete, hidden_sizes=(8, 8), **options)
    batch = learner.prepare(two_sources(discrete, rows=6))
    parameters = list(learner.parameters())
    torch.manual_seed(1)
    eager = learner(batch)
    torch.manual_seed(1)
    compiled = torch.compile(learner.__call__, fullgraph=True, backend="aot_eager")(batch)
    torch.testing.assert_close(compiled.total, eager.total)
    expected, found = (torch.autograd.grad(loss.total, parameters) for loss in (eager, compiled))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_discriminator_gets_every_option_of_its_own():
    named = {"learning_rate": 0.5, "batch_size": 7, "hidden_sizes": (3,)}
    shared = {"gradient_penalty": 2.0, "spectral_norm": True}
    config = GAILConfig(**{f"discriminator_{name}": value for name, value in named.items()}, **shared)
    assert config.discriminator() == DiscriminatorConfig(**named, **shared)


def test_its_state_round_trips(discrete):
    learner, other = (GAILDiscriminator.build(discrete, gradient_penalty=1.0) for _ in range(2))
    check_loaded_state(learner, other, learner.prepare(two_sources(discrete)))


@pytest.mark.parametrize(
    "option",
    [
        {"reward_form": "airl"},
        {"discriminator_updates": 0},
        {"gradient_penalty": -1},
        {"absorbing_states": True, "gamma": 1.0},
    ],
    ids=str,
)
def test_a_bad_option_is_refused_by_name(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        GAILConfig(**option)
