"""AWAC: its losses against a plain implementation, the order of its updates, and its policy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rl_training.algorithms import AWACAlgorithm, AWACConfig, Updater, awac_policy_loss
from rl_training.types import EnvSpec


def build(box: EnvSpec, **options: Any) -> AWACAlgorithm:
    learner = AWACAlgorithm.build(box, **{"hidden_sizes": (8,), "normalize_obs": False, "gamma": 0.9, **options})
    with torch.no_grad():
        for parameter in (*learner.model.parameters(), *learner.target.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def test_the_policy_loss_by_hand():
    advantage, log_prob = torch.tensor([0.5, -1.0, 50.0]), torch.tensor([-1.0, -2.0, -0.1])
    loss = awac_policy_loss(advantage, log_prob, AWACConfig(awac_lambda=0.5))
    weights = [math.exp(1), math.exp(-2), 100.0]  # exp(A / lambda), and its upper bound
    assert loss.terms["actor_loss"].item() == pytest.approx((weights[0] * 1 + weights[1] * 2 + weights[2] * 0.1) / 3)
    assert loss.metrics["advantage_weight_mean"].item() == pytest.approx(sum(weights) / 3)


def test_no_gradient_passes_through_the_weights():
    advantage, log_prob = torch.zeros(2, requires_grad=True), torch.tensor([-1.0, -2.0], requires_grad=True)
    awac_policy_loss(advantage, log_prob, AWACConfig()).total.backward()
    assert advantage.grad is None
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [-0.5, -0.5]


def test_the_target_is_the_smaller_target_critic_at_a_clipped_sample(box, draw):
    learner, rows = build(box), draw(box, 3)
    with torch.no_grad():
        learner.model.actor.log_std.fill_(1.0)  # many samples are outside [-1, 1]
    torch.manual_seed(4)
    found = learner.target_q(rows).tolist()
    torch.manual_seed(4)
    with torch.no_grad():
        raw = learner.model.actor.net(rows["next_obs"]) + math.e * torch.randn(3, 2)
        assert raw.abs().max() > 1
        q = learner.target["critic"](rows["next_obs"], raw.clamp(-1, 1))
    y = [float(r + 0.9 * min(pair)) for r, pair in zip(rows["rewards"], q.T, strict=True)]
    assert found == pytest.approx([y[0], rows["rewards"][1].item(), y[2]], abs=1e-5)  # the second row terminates


def test_the_critic_loss_is_summed_over_both_critics(box, draw):
    learner, rows = build(box), draw(box, 3)
    torch.manual_seed(4)
    loss = learner.critics(rows).terms["critic_loss"]
    torch.manual_seed(4)
    q, y = learner.model.critic(rows["obs"], rows["actions"]), learner.target_q(rows)
    torch.testing.assert_close(loss, (q[0] - y).square().mean() + (q[1] - y).square().mean())


def test_the_advantage_compares_the_data_with_a_sample_of_the_policy_by_the_online_critics(box, draw):
    learner, rows = build(box), draw(box, 4)
    torch.manual_seed(5)
    found = learner.advantage(rows["obs"], rows["actions"])
    torch.manual_seed(5)
    with torch.no_grad():
        sample = learner.model.actor(rows["obs"]).sample().clamp(-1, 1)
        q, v = (torch.minimum(*learner.model.critic(rows["obs"], each)) for each in (rows["actions"], sample))
    torch.testing.assert_close(found, q - v)


def test_the_policy_is_fitted_to_the_actions_of_the_data(box, draw):
    learner, rows = build(box, awac_lambda=0.7), draw(box, 4)
    torch.manual_seed(5)
    loss = learner.policy(rows).terms["actor_loss"].item()
    torch.manual_seed(5)
    weight = (learner.advantage(rows["obs"], rows["actions"]) / 0.7).exp().clamp(max=100)
    mean, std = learner.model.actor.net(rows["obs"]), learner.model.actor.log_std.exp()
    log_prob = torch.distributions.Normal(mean, std).log_prob(rows["actions"]).sum(1)
    assert loss == pytest.approx(-(weight * log_prob).mean().item(), rel=1e-5)


def test_each_loss_trains_its_own_network_alone(box, draw, reached):
    learner, rows = build(box), draw(box, 4)
    assert reached(learner.critics(rows).total, learner) == {"critic"}
    assert reached(learner.policy(rows).total, learner) == {"actor"}


def test_the_policy_follows_the_updated_critics_and_the_targets_come_last(box, draw):
    learner, rows = build(box), draw(box, 4)
    assert learner.phases(0) == learner.phases(1) == ("critics", "policy", "targets")
    old = {name: value.clone() for name, value in learner.target.named_parameters()}
    Updater([learner]).update(rows)
    online = dict(learner.model.named_parameters())
    for name, value in learner.target.named_parameters():
        torch.testing.assert_close(value, old[name].lerp(online[name], 0.005))


def test_the_mean_is_unbounded_and_the_log_std_is_clipped(box):
    learner = build(box)
    with torch.no_grad():
        learner.model.actor.net[-1].bias.fill_(3.0)
        learner.model.actor.net[-1].weight.zero_()
        learner.model.actor.log_std.copy_(torch.tensor([-30.0, 5.0]))
    policy = learner.model.actor(torch.zeros(1, 3))
    assert policy.mean.tolist() == [[3.0, 3.0]]
    assert policy.log_std.tolist() == [[-20.0, 2.0]]
    assert learner.act(torch.zeros(1, 3), deterministic=True).actions.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("option", ["awac_lambda", "max_advantage_weight", "tau"])
def test_zero_is_refused_by_the_name_of_its_option(option):
    with pytest.raises(ValueError, match=option):
        AWACConfig(**{option: 0})
