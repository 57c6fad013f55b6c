"""TD3: its losses by hand, its delayed actor, and where gradients go."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import TD3Algorithm, TD3Config, smoothed_actions
from rl_training.models.values import Critic


def test_target_noise_is_clipped_and_so_are_the_actions():
    middle = smoothed_actions(torch.zeros(10_000, 1), noise=0.2, clip=0.5)
    assert middle.abs().max().item() == 0.5
    assert middle.std().item() == pytest.approx(0.197, abs=0.005)  # 0.2, less the tails beyond 2.5 deviations
    assert smoothed_actions(torch.full((10_000, 1), 0.9), noise=0.2, clip=0.5).max().item() == 1.0


def test_the_critics_are_fitted_to_the_smaller_target_critic(box, draw):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,), target_noise=0.0, gamma=0.9), draw(box, 3)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # targets that are not what they follow
        actions = learner.target["actor"](rows["next_obs"]).mode()
        next_q = torch.minimum(*learner.target["critic"](rows["next_obs"], actions))
    y = rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * next_q  # the second row terminates, the third runs out
    q1, q2 = learner.model.critic(rows["obs"], rows["actions"])
    loss = learner.critic_loss(rows)
    torch.testing.assert_close(loss.terms["critic_loss"], (q1 - y).square().mean() + (q2 - y).square().mean())
    torch.testing.assert_close(loss.metrics["target_q_mean"], y.mean())


def test_a_target_of_several_steps_is_discounted_by_row(box, draw):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,), target_noise=0.0, gamma=0.9), draw(box, 3)
    discounts = torch.tensor([0.9, 0.81, 0.729])
    batches = (rows, {**rows, "discounts": discounts})
    plain, discounted = (learner.target_q(batch) - rows["rewards"] for batch in batches)
    torch.testing.assert_close(discounted, plain * discounts / 0.9)


def test_the_target_smooths_the_actions_that_it_values(box, draw):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,)), draw(box, 3)
    draws = [learner.target_q(rows) for _ in range(2)]
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] == draws[1][1] == rows["rewards"][1]  # nothing follows on a termination


def test_the_actor_climbs_the_first_critic_alone(box, draw):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    q1 = learner.model.critic(rows["obs"], learner.model.actor(rows["obs"]).mode())[0]
    loss = learner.actor_loss(rows).terms
    assert loss.keys() == {"actor_loss"}
    torch.testing.assert_close(loss["actor_loss"], -q1.mean())


@pytest.mark.parametrize("network", [{"kind": "mlp"}, {"kind": "simba"}, {"kind": "mlp", "layer_norm": True}], ids=str)
def test_the_gradient_of_the_actor_is_that_of_the_first_critic(network, box, draw):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,), network=network), draw(box, 4)
    actor = list(learner.model.actor.parameters())
    obs = learner.normalizer(rows["obs"])
    q1 = learner.model.critic(obs, learner.model.actor(obs).mode())[0]
    expected, found = torch.autograd.grad(-q1.mean(), actor), torch.autograd.grad(learner.actor_loss(rows).total, actor)
    torch.testing.assert_close(found, expected)


class Values(nn.Module):
    """Two critics without an axis of copies."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(5, 2)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.net(torch.cat([obs, actions], -1)).T


class Expanded(Critic):
    """A subclass that gives each of its `copies` its rows."""

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        x = torch.cat([obs, actions], -1)
        return self.net(x.expand(self.copies, *x.shape)).squeeze(-1)


@pytest.mark.parametrize("critic", [Values, lambda: Expanded(3, 2, (8,))], ids=["own", "subclass"])
def test_the_actor_alone_maximises_the_first_value_of_critics_of_your_own(critic, box, draw, reached):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    learner.model.critic = critic()
    q1 = learner.model.critic(rows["obs"], learner.model.actor(rows["obs"]).mode())[0]
    loss = learner.actor_loss(rows).total
    torch.testing.assert_close(loss, -q1.mean())
    assert reached(loss, learner) == {"actor"}


def test_each_term_trains_its_own_network_alone(box, draw, reached):
    learner, rows = TD3Algorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    assert reached(learner.critic_loss(rows).total, learner) == {"critic"}
    assert reached(learner.actor_loss(rows).total, learner) == {"actor"}


def test_actor_and_targets_move_at_every_third_update_where_the_delay_is_three(box, draw, changed_parts):
    learner = TD3Algorithm.build(box, hidden_sizes=(8,), policy_delay=3)
    critic, everything = {"model.critic"}, {"model.actor", "model.critic", "target.actor", "target.critic"}
    assert changed_parts(learner, draw(box, 4), 4) == [critic, critic, everything, critic]
    assert learner.phases(2) == ("critic_loss", "actor_loss", "targets")  # the actor follows the updated critic


def test_it_acts_by_its_actor_and_leaves_noise_to_the_lane(box):
    learner, obs = TD3Algorithm.build(box, hidden_sizes=(8,)), torch.randn(5, 3)
    assert learner.act(obs).actions.equal(learner.model.actor.net(obs).tanh())


@pytest.mark.parametrize(
    ("option", "value"),
    [("policy_delay", 0), ("target_noise", -0.1), ("action_noise", "pink"), ("action_noise_scale", -1),
     ("action_noise_theta", 0), ("n_step", 0)],
)  # fmt: skip
def test_bad_values_are_refused_by_the_name_of_their_option(option, value):
    with pytest.raises(ValueError, match=option):
        TD3Config(**{option: value})
