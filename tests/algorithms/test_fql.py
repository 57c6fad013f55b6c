"""FQL: its losses by hand, the steps of its flow, and where gradients go."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms import FQLAlgorithm, FQLConfig
from rl_training.algorithms.fql import flow_matching_loss, fql_policy_loss
from rl_training.types import EnvSpec


def build(box: EnvSpec, **options: Any) -> FQLAlgorithm:
    learner = FQLAlgorithm.build(box, **{"hidden_sizes": (8, 8), "gamma": 0.9, **options})
    with torch.no_grad():
        for parameter in (*learner.model.parameters(), *learner.target.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def test_the_flow_matching_loss_by_hand():
    velocity, noise, actions = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, -0.5]])
    # The velocity from noise to action is (0.5, -1).
    assert flow_matching_loss(velocity, noise, actions).item() == (0.5**2 + 1**2) / 2


@pytest.mark.parametrize(("normalize", "q_loss"), [(False, 1.0), (True, 0.5)])
def test_the_policy_loss_by_hand(normalize, q_loss):
    q, chosen, flow = torch.tensor([1.0, -3.0]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.zeros(2, 2)
    loss = fql_policy_loss(q, chosen, flow, FQLConfig(alpha=3.0, normalize_q_loss=normalize))
    assert loss.terms["distillation_loss"].item() == 3 * 1 / 4  # a mean over rows and dimensions
    assert loss.terms["actor_loss"].item() == q_loss  # -(1 - 3) / 2, divided by the mean of 1 and 3


def test_no_gradient_passes_through_the_scale_of_q():
    q = torch.tensor([1.0, -3.0], requires_grad=True)
    config = FQLConfig(normalize_q_loss=True)
    fql_policy_loss(q, torch.zeros(2, 1), torch.zeros(2, 1), config).terms["actor_loss"].backward()
    assert q.grad is not None
    assert q.grad.tolist() == [-0.25, -0.25]


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_the_target_values_a_clipped_sample_of_the_policy(box, draw, aggregation):
    learner, rows = build(box, q_aggregation=aggregation), draw(box, 3)
    torch.manual_seed(2)
    found = learner.target_q(rows).tolist()
    torch.manual_seed(2)
    with torch.no_grad():
        raw = learner.model.actor.net(torch.cat([rows["next_obs"], torch.randn(3, 2)], 1))
        first, second = learner.target["critic"](rows["next_obs"], raw.clamp(-1, 1))
    next_q = (first + second) / 2 if aggregation == "mean" else torch.minimum(first, second)
    y = (rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * next_q).tolist()  # the second row terminates
    assert found == pytest.approx(y, abs=1e-5)


def test_the_critic_loss_is_a_mean_over_both_critics(box, draw):
    learner, rows = build(box), draw(box, 3)
    torch.manual_seed(2)
    loss = learner.critics(rows).terms["critic_loss"]
    torch.manual_seed(2)
    q, y = learner.model.critic(rows["obs"], rows["actions"]), learner.target_q(rows)
    torch.testing.assert_close(loss, ((q[0] - y).square().mean() + (q[1] - y).square().mean()) / 2)


def test_the_flow_is_integrated_in_euler_steps_from_time_zero(box, draw, monkeypatch):
    learner, obs = build(box, flow_steps=4), draw(box, 1)["obs"]
    times = []

    def velocity(_obs: Any, actions: Any, time: Any) -> Any:
        times.append(time.item())
        return torch.tensor([[0.2, 4.0]]) * (1 + time)

    monkeypatch.setattr(learner.model.flow, "forward", velocity)
    found = learner.flow_actions(obs, torch.tensor([[-0.5, 0.0]]))
    assert times == [0, 0.25, 0.5, 0.75]
    total = (1 + 1.25 + 1.5 + 1.75) / 4
    assert found[0].tolist() == pytest.approx([-0.5 + 0.2 * total, 1.0])  # the second is clipped


def test_the_losses_of_a_batch_against_a_plain_implementation(box, draw):
    learner, rows = build(box, alpha=3.0), draw(box, 5)
    model, obs, actions = learner.model, rows["obs"], rows["actions"]
    with torch.no_grad():
        model.actor.net[-1].bias.fill_(0.8)  # some actions are outside [-1, 1]
    torch.manual_seed(2)
    terms = learner.policy(rows).terms
    torch.manual_seed(2)
    (x, z), t = torch.randn(2, 5, 2), torch.rand(5, 1)
    velocity = model.flow.net(torch.cat([obs, x + t * (actions - x), t], 1))
    torch.testing.assert_close(terms["flow_loss"], (velocity - actions + x).square().mean())
    chosen = model.actor.net(torch.cat([obs, z], 1))
    assert (chosen.abs() > 1).any()
    distance = (chosen - learner.flow_actions(obs, z)).square().mean()
    torch.testing.assert_close(terms["distillation_loss"], 3 * distance)
    torch.testing.assert_close(terms["actor_loss"], -model.critic(obs, chosen.clamp(-1, 1)).mean())


def test_each_term_trains_its_own_network_alone(box, draw, reached):
    learner, rows = build(box), draw(box, 4)
    found = {name: reached(term, learner) for name, term in learner.loss(rows).terms.items()}
    assert found == {"critic_loss": {"critic"}, "actor_loss": {"actor"}, "distillation_loss": {"actor"},
                     "flow_loss": {"flow"}}  # fmt: skip


def test_deterministic_actions_have_no_noise(box, draw):
    learner, obs = build(box), draw(box, 4)["obs"]
    expected = learner.model.actor.net(torch.cat([obs, torch.zeros(4, 2)], 1)).clamp(-1, 1)
    torch.testing.assert_close(learner.act(obs, deterministic=True).actions, expected)
    assert not learner.act(obs).actions.equal(learner.act(obs).actions)


def test_networks_are_those_of_the_authors(box):
    model = FQLAlgorithm.build(box).model
    assert [type(layer).__name__ for layer in model.actor.net] == ["Linear", "GELU"] * 4 + ["Linear"]
    kinds = [type(layer).__name__ for layer in model.critic.net]
    assert kinds == ["EnsembleLinear", "GELU", "EnsembleLayerNorm"] * 4 + ["EnsembleLinear"]
    assert model.flow.net[0].in_features == 3 + 2 + 1
    bound = (6 / (512 + 512)) ** 0.5
    assert 0.99 * bound < model.flow.net[2].weight.abs().max().item() <= bound
    assert (model.flow.net[2].bias == 0).all()


@pytest.mark.parametrize("option", ["alpha", "flow_steps", "tau"])
def test_zero_is_refused_by_the_name_of_its_option(option):
    with pytest.raises(ValueError, match=option):
        FQLConfig(**{option: 0})
