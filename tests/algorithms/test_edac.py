"""EDAC: the diversity of gradients by hand and against autograd, the minimum of all critics, and its networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import EDACAlgorithm, EDACConfig, Updater
from rl_training.algorithms.edac import gradient_diversity_loss, values_and_gradients
from rl_training.types import EnvSpec


def build(box: EnvSpec, **options: Any) -> EDACAlgorithm:
    small = {"hidden_sizes": (8, 8), "num_critics": 3, "gamma": 0.9, "temperature": 0.5}
    learner = EDACAlgorithm.build(box, **{**small, **options})
    with torch.no_grad():
        for parameter in (*learner.model.parameters(), *learner.target.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return learner


def pairwise_loss(critic: Any, obs: Tensor, actions: Tensor) -> Tensor:
    """The diversity loss by its definition: one critic and one pair at a time."""
    unit = []
    linear = [layer for layer in critic.net if hasattr(layer, "weight")]
    for member in range(len(linear[0].weight)):
        inputs = actions.clone().requires_grad_()
        x = torch.cat([obs, inputs], 1)
        for layer in linear[:-1]:
            x = (x @ layer.weight[member] + layer.bias[member]).relu()
        q = x @ linear[-1].weight[member] + linear[-1].bias[member]
        (slope,) = torch.autograd.grad(q.sum(), inputs, create_graph=True)
        unit.append(slope / slope.square().sum(1, keepdim=True).sqrt())
    total = sum((unit[i] * unit[j]).sum(1) for i in range(len(unit)) for j in range(len(unit)) if i != j)
    return torch.as_tensor(total).mean() / (len(unit) - 1)


def test_the_diversity_loss_by_hand():
    # Three critics, two rows. Unit gradients: (1, 0), (0, 1), (-1, 0) and three times (0.6, 0.8).
    slopes = torch.tensor([[[2.0, 0.0], [3.0, 4.0]], [[0.0, 0.5], [6.0, 8.0]], [[-7.0, 0.0], [0.3, 0.4]]])
    # Ordered pairs: 2 * (0 - 1 + 0) in the first row, 6 * 1 in the second.
    assert gradient_diversity_loss(slopes).item() == pytest.approx((-2 + 6) / 2 / (3 - 1), abs=1e-6)


def test_a_zero_gradient_counts_as_zero():
    slopes = torch.zeros(2, 1, 2, requires_grad=True)
    loss = gradient_diversity_loss(slopes)
    loss.backward()
    assert loss.item() == 0
    assert slopes.grad is not None
    assert slopes.grad.isfinite().all()


def test_the_diversity_loss_and_its_gradients_are_those_of_single_critics(box, draw):
    learner, rows = build(box), draw(box, 5)
    critic = learner.model.critic
    q, slopes = values_and_gradients(critic, rows["obs"], rows["actions"])
    torch.testing.assert_close(q, critic(rows["obs"], rows["actions"]))
    found, expected = gradient_diversity_loss(slopes), pairwise_loss(critic, rows["obs"], rows["actions"])
    torch.testing.assert_close(found, expected)
    weights = [critic.net[index].weight for index in (0, 2, 4)]
    pairs = zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True)
    for mine, plain in pairs:
        assert mine.abs().max() > 0
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-4)


def test_every_critic_is_fitted_to_the_smallest_of_all_with_the_entropy_term(box, draw):
    learner, rows = build(box, eta=2.0), draw(box, 3)
    torch.manual_seed(1)
    terms = learner.critics(rows).terms
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["next_obs"]).sample_with_log_prob()
    next_q = learner.target["critic"](rows["next_obs"], actions).min(0).values - 0.5 * log_prob
    y = (rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * next_q).detach()  # the second row terminates
    errors = [(q - y).square().mean() for q in learner.model.critic(rows["obs"], rows["actions"])]
    torch.testing.assert_close(terms["critic_loss"], torch.stack(errors).sum())  # without SAC's factor 1/2
    diversity = pairwise_loss(learner.model.critic, rows["obs"], rows["actions"])
    torch.testing.assert_close(terms["diversity_loss"], 2 * diversity)


def test_the_logged_std_is_that_of_the_critics_at_each_row(box, draw):
    learner, rows = build(box), draw(box, 4)
    q = learner.model.critic(rows["obs"], rows["actions"]).detach().numpy()
    assert learner.critics(rows).metrics["q_std"].item() == pytest.approx(q.std(0, ddof=1).mean(), rel=1e-5)


def test_without_eta_it_is_sac_n(box, draw, reached):
    learner, other, rows = build(box, eta=0.0), build(box), draw(box, 3)
    other.load_state_dict(learner.state_dict())
    losses = []
    for each in (learner, other):
        torch.manual_seed(1)
        losses.append(each.critics(rows).terms)
    assert losses[0].keys() == {"critic_loss"}
    assert losses[0]["critic_loss"].item() == pytest.approx(losses[1]["critic_loss"].item())
    assert reached(losses[0]["critic_loss"], learner) == {"critic"}


def test_the_actor_maximises_the_smallest_of_all_critics(box, draw):
    learner, rows = build(box), draw(box, 6)
    torch.manual_seed(1)
    loss = learner.policy(rows).terms["actor_loss"]
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["obs"]).sample_with_log_prob()
    torch.testing.assert_close(loss, (0.5 * log_prob - learner.model.critic(rows["obs"], actions).min(0).values).mean())


def test_each_term_trains_its_own_part_alone(box, draw, reached):
    learner, rows = build(box), draw(box, 4)
    found = {name: reached(term, learner) for name, term in learner.loss(rows).terms.items()}
    assert found == {"critic_loss": {"critic"}, "diversity_loss": {"critic"}, "actor_loss": {"actor"},
                     "temperature_loss": {"log_alpha"}}  # fmt: skip


def test_the_gradients_of_a_batch_with_gradients_stay_inside(box, draw):
    """The dataset's actions never get a gradient."""
    learner, rows = build(box), draw(box, 4)
    learner.critics(rows).total.backward()
    assert rows["actions"].grad is None
    assert not rows["actions"].requires_grad


def test_networks_have_small_outputs_and_a_bounded_log_std(box):
    model = EDACAlgorithm.build(box).model
    assert model.critic.net[0].weight.shape == (10, 5, 256)
    for net, bound in ((model.actor.net, 1e-3), (model.critic.net, 3e-3)):
        linear = [layer for layer in net if "Linear" in type(layer).__name__]
        assert len(linear) == 4
        assert all((layer.bias == 0.1).all() for layer in linear[:-1])
        for parameter in (linear[-1].weight, linear[-1].bias):
            assert 0 < parameter.abs().max() <= bound
        assert linear[-1].weight.min() < 0 < linear[-1].weight.max()
    with torch.no_grad():
        model.actor.net[-1].weight.zero_()
        model.actor.net[-1].bias.copy_(torch.tensor([0.0, 0.0, -9.0, 9.0]))
    assert model.actor(torch.zeros(1, 3)).log_std.tolist() == [[-5.0, 2.0]]


def test_the_temperature_learns_at_the_rate_of_the_actor(box):
    actor, critics = Updater([EDACAlgorithm.build(box, actor_learning_rate=3e-5)]).groups
    assert (actor[0].learning_rate, critics[0].learning_rate) == (3e-5, 3e-4)
    assert "log_alpha" in actor[1]


def test_a_single_critic_is_refused():
    with pytest.raises(ValueError, match="num_critics"):
        EDACConfig(num_critics=1)
