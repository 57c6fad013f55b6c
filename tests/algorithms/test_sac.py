"""Soft actor-critic: its three losses recomputed with the same noise, and where their gradients go."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import SACAlgorithm, sac_actor_loss, temperature_loss
from rl_training.types import Batch


def squashed(learner: SACAlgorithm, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions and log-probs from torch's own normal and the textbook change of variables."""
    mean, log_std = learner.model.actor.net(obs).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    raw = mean + log_std.exp() * noise
    return raw.tanh(), (normal.log_prob(raw) - (1 - raw.tanh() ** 2).log()).sum(-1)


def expected_terms(learner: SACAlgorithm, rows: Batch, alpha: float, gamma: float) -> dict[str, Tensor]:
    next_noise, noise = torch.randn(6, 2), torch.randn(6, 2)  # as the loss draws them: the target first
    next_actions, next_log_prob = squashed(learner, rows["next_obs"], next_noise)
    next_q = torch.minimum(*learner.target["critic"](rows["next_obs"], next_actions)) - alpha * next_log_prob
    y = rows["rewards"] + gamma * (1 - rows["dones"]) * next_q
    q1, q2 = learner.model.critic(rows["obs"], rows["actions"])
    actions, log_prob = squashed(learner, rows["obs"], noise)
    return {
        "critic_loss": 0.5 * ((q1 - y).square().mean() + (q2 - y).square().mean()),
        "actor_loss": (alpha * log_prob - torch.minimum(*learner.model.critic(rows["obs"], actions))).mean(),
        "temperature_loss": -(math.log(alpha) * (log_prob - 2)).mean(),  # target entropy: minus two dimensions
    }


def test_a_target_of_several_steps_is_discounted_by_row(box, draw):
    learner, rows = SACAlgorithm.build(box, hidden_sizes=(8,), temperature=0.5, gamma=0.9), draw(box, 6)
    discounts = torch.tensor([0.9, 0.81, 0.729, 0.9, 0.81, 0.729])
    targets = []
    for batch in (rows, {**rows, "discounts": discounts}):
        torch.manual_seed(1)
        targets.append(learner.target_q(batch, torch.tensor(0.5)) - rows["rewards"])
    torch.testing.assert_close(targets[1], targets[0] * discounts / 0.9)


def test_the_three_losses_are_those_of_the_paper(box, draw):
    learner, rows = SACAlgorithm.build(box, hidden_sizes=(8,), temperature=0.5, gamma=0.9), draw(box, 6)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # a target that is not the critic
    torch.manual_seed(1)
    terms, metrics, *_ = learner.loss(rows)
    torch.manual_seed(1)
    expected = expected_terms(learner, rows, alpha=0.5, gamma=0.9)
    assert metrics["entropy"].item() == pytest.approx(expected["temperature_loss"].item() / math.log(0.5) - 2, rel=1e-4)
    assert terms.keys() == expected.keys()
    for name in terms:
        torch.testing.assert_close(terms[name], expected[name], rtol=1e-4, atol=1e-5)
    for part, name in ((learner.model.actor, "actor_loss"), (learner.model.critic, "critic_loss")):
        gradients = [
            torch.autograd.grad(x[name], list(part.parameters()), retain_graph=True) for x in (terms, expected)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_the_target_stops_at_terminations_and_not_at_time_limits(box, draw):
    learner, rows, alpha = SACAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 3), torch.tensor(0.2)
    torch.manual_seed(1)
    continues, terminates, runs_out = learner.target_q(rows, alpha)  # so `draw` ends its rows, in this order
    assert terminates.item() == rows["rewards"][1].item()
    assert continues.item() != rows["rewards"][0].item()
    assert runs_out.item() != rows["rewards"][2].item()
    torch.manual_seed(1)
    unlimited = learner.target_q({**rows, "truncated": torch.zeros(3)}, alpha)
    assert torch.equal(unlimited, torch.stack([continues, terminates, runs_out]))


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,))
    terms = learner.loss(draw(box, 6)).terms
    assert reached(terms["critic_loss"], learner) == {"critic"}
    assert reached(terms["actor_loss"], learner) == {"actor"}
    assert reached(terms["temperature_loss"], learner) == {"log_alpha"}


@pytest.mark.parametrize(("target_entropy", "direction"), [(10.0, 1), (-10.0, -1)])
def test_temperature_rises_below_the_entropy_target_and_falls_above_it(box, draw, target_entropy, direction):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,), target_entropy=target_entropy, learning_rate=1e-2)
    entropy = learner.update(draw(box, 6)).metrics["entropy"]
    assert -10 < entropy < 10
    assert learner.log_alpha.item() == pytest.approx(direction * 1e-2)  # from log 1, by Adam's first step


def test_the_actor_climbs_values_and_entropy_by_its_price():
    q, log_prob = torch.tensor([3.0, 1.0], requires_grad=True), torch.tensor([-2.0, 4.0], requires_grad=True)
    loss = sac_actor_loss(q, log_prob, 0.5)
    assert loss.item() == ((0.5 * -2 - 3) + (0.5 * 4 - 1)) / 2
    slopes = torch.autograd.grad(loss, (q, log_prob))
    assert [slope.tolist() for slope in slopes] == [[-0.5, -0.5], [0.25, 0.25]]


def test_temperature_loss_pulls_equally_whatever_the_temperature_is():
    log_prob = torch.tensor([1.0, 2.0])
    for start in (-3.0, 2.0):
        log_alpha = torch.tensor(start, requires_grad=True)
        (slope,) = torch.autograd.grad(temperature_loss(log_alpha, log_prob, -2.0), log_alpha)
        assert slope.item() == pytest.approx(0.5)  # -((1 - 2) + (2 - 2)) / 2, without a factor of alpha


def test_a_temperature_that_is_not_tuned_stays(box, draw):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,), temperature=0.3, tune_temperature=False)
    for _ in range(3):
        result = learner.update(draw(box, 6))
    assert learner.log_alpha.item() == pytest.approx(math.log(0.3))
    assert result.metrics["temperature"].item() == pytest.approx(0.3)
    assert "temperature_loss" not in result.metrics


def test_the_automatic_entropy_target_is_minus_the_number_of_dimensions(box):
    assert SACAlgorithm.build(box).target_entropy == -2.0
    assert SACAlgorithm.build(box, target_entropy=0.5).target_entropy == 0.5


def test_acting_without_noise_takes_the_middle_of_the_policy(box):
    learner, obs = SACAlgorithm.build(box, hidden_sizes=(8,)), torch.randn(5, 3)
    mean = learner.model.actor.net(obs)[:, :2]
    torch.testing.assert_close(learner.act(obs, deterministic=True).actions, mean.tanh())
