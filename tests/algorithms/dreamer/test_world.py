"""What is fitted to what was lived, term by term by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Bernoulli, Independent, OneHotCategorical, kl_divergence

from rl_training.algorithms.dreamer import (
    DreamerAlgorithm,
)
from rl_training.models.rssm import Latent, LatentSequence
from rl_training.types import Batch, EnvSpec

VECTORS = EnvSpec((3,), "box", 2)


def test_every_term_of_the_world_model_by_an_independent_calculation(used, windows):
    learner, batch = used(dynamics_weight=0.7, representation_weight=0.2, gamma=0.9, free_nats=0.3), windows()
    states = learner.observe(batch)
    model, features = learner.model, states.latent.features
    terms = learner.world_loss(states, batch).terms
    pixels = batch["obs"].double() / 255
    reconstruction = (model.decode(states.latent).double() - pixels).square().sum((2, 3, 4)).mean()
    logits, bins = model.reward.net(features), model.reward.bins
    distance = (batch["rewards"].unsqueeze(-1) - bins).abs()
    nearest = distance.topk(2, largest=False)  # with bins as close as these, those on either side of small rewards
    weights = 1 - nearest.values / nearest.values.sum(-1, keepdim=True)
    reward = -(weights * logits.log_softmax(-1).gather(-1, nearest.indices)).sum(-1).mean()
    distribution = Bernoulli(logits=model.continuation(features).squeeze(-1), validate_args=False)
    going = -distribution.log_prob((1 - batch["dones"]) * 0.9).mean()
    post, prior = (Independent(OneHotCategorical(logits=each), 1) for each in (states.posterior, states.prior))
    floored = kl_divergence(post, prior).clamp(min=0.3).mean()
    expected = [reconstruction, reward, going, 0.7 * floored, 0.2 * floored]
    assert [term.item() for term in terms.values()] == pytest.approx([each.item() for each in expected], rel=1e-5)


def test_vectors_are_compared_after_symlog(used, windows):
    learner, batch = used(VECTORS), windows(VECTORS)
    states = learner.observe(batch)
    pressed = batch["obs"].sign() * (1 + batch["obs"].abs()).log()
    expected = (learner.model.decode(states.latent) - pressed).square().sum(-1).mean()
    found = learner.world_loss(states, batch).terms["dreamer_reconstruction_loss"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_continuation_is_fitted_to_terminations_alone_with_or_without_the_discount(used, windows):
    for discounted, target in ((True, 0.9), (False, 1.0)):
        learner, batch = used(discounted_continue=discounted, gamma=0.9), windows()
        with torch.no_grad():
            learner.model.continuation[-1].weight.zero_()
            learner.model.continuation[-1].bias.fill_(1.0)
        loss = learner.world_loss(learner.observe(batch), batch).terms["dreamer_continue_loss"]
        yes, no = math.log1p(math.exp(-1)), 1 + math.log1p(math.exp(-1))  # of 18 steps one is terminal
        assert loss.item() == pytest.approx((17 * (target * yes + (1 - target) * no) + no) / 18, rel=1e-5)


def states_apart(
    by: float, learner: DreamerAlgorithm, batch: Batch
) -> tuple[LatentSequence, torch.Tensor, torch.Tensor]:
    """LatentSequence whose first latent has this much more weight on a class after seeing than before."""
    prior, posterior = (torch.zeros(3, 6, 4, 4, requires_grad=True) for _ in range(2))
    more = torch.zeros(4, 4)
    more[:, 0] = by
    latent = Latent(*(each.detach() for each in learner.observe(batch).latent))
    return LatentSequence(latent, (posterior + more).log_softmax(-1), prior.log_softmax(-1)), posterior, prior


def test_the_floor_is_under_the_sum_over_latents_and_below_it_nothing_pulls(small, windows):
    learner, batch = small(), windows()
    # A divergence of 0.28 nats in each of four latents: below the floor one by one, above it together.
    for by, over in ((0.5, False), (1.5, True)):
        states, posterior, prior = states_apart(by, learner, batch)
        loss = learner.world_loss(states, batch)
        total = loss.metrics["dreamer_divergence"].item()
        assert (total > 1) == over
        assert total < 4
        terms = [loss.terms[f"dreamer_{name}_loss"] for name in ("dynamics", "representation")]
        assert [term.item() for term in terms] == pytest.approx([max(total, 1), 0.1 * max(total, 1)])
        for term, mine, other in ((terms[0], prior, posterior), (terms[1], posterior, prior)):
            pull, none = torch.autograd.grad(term, (mine, other), allow_unused=True, retain_graph=True)
            assert none is None
            assert (pull.abs().sum() > 0) == over


def test_the_floor_holds_for_each_step_and_not_for_the_mean(small, windows):
    learner, batch = small(), windows()
    states, _, _ = states_apart(0.0, learner, batch)
    # In half of the 18 steps the posterior is certain of each of four latents: a divergence of 4 log 4 = 5.545.
    certain = torch.tensor([0.0, -1e9, -1e9, -1e9]).log_softmax(-1).expand(4, 4)
    posterior = states.posterior.detach().clone()
    posterior[:, ::2] = certain
    loss = learner.world_loss(states._replace(posterior=posterior), batch)
    assert loss.metrics["dreamer_divergence"].item() == pytest.approx(2 * math.log(4))
    expected = (1 + 4 * math.log(4)) / 2  # the other half counts as 1, the floor
    assert loss.terms["dreamer_dynamics_loss"].item() == pytest.approx(expected)
    assert loss.terms["dreamer_representation_loss"].item() == pytest.approx(0.1 * expected)


def test_the_dynamics_train_the_prior_and_the_representation_what_sees(used, windows):
    learner, batch = used(free_nats=0.0), windows(steps=4)
    batch["is_first"] = torch.ones(3, 4)  # so that no memory carries a gradient from one step to the next
    terms = learner.world_loss(learner.observe(batch), batch).terms

    def touched(name: str) -> set[str]:
        trained = dict(learner.model.named_parameters())
        gradients = torch.autograd.grad(
            terms[f"dreamer_{name}_loss"], list(trained.values()), allow_unused=True, retain_graph=True
        )
        return {
            ".".join(part.split(".")[:2]) if part.startswith("rssm") else part.split(".")[0]
            for part, gradient in zip(trained, gradients, strict=True)
            if gradient is not None and gradient.any()
        }

    dynamics, representation = touched("dynamics"), touched("representation")
    assert dynamics == {"rssm.cell", "rssm.prior"}
    assert representation == {"encoder", "rssm.seen", "rssm.recalled", "rssm.posterior", "rssm.cell"}
