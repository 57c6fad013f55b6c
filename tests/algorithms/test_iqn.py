"""IQN: fractions that are drawn anew, and a quantile function of them."""

from __future__ import annotations

import math
from typing import Any

import torch

from rl_training.algorithms import IQNAlgorithm
from rl_training.models import IQNModel, midpoints


def small(spec, **options) -> IQNAlgorithm:
    return IQNAlgorithm.build(
        spec, hidden_sizes=(6, 8), num_quantiles=5, num_acting_quantiles=7, num_cosines=3, **options
    )


def test_midpoints_are_the_middles_of_equal_parts():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_cosines_of_the_fraction_multiply_the_features(discrete):
    network: Any = IQNModel(discrete, (6, 8), num_cosines=3).q
    obs, tau = torch.randn(2, 3), 0.3
    cosines = torch.tensor([1.0, math.cos(math.pi * tau), math.cos(2 * math.pi * tau)])  # counted from zero
    embedded = (network.embedding.weight @ cosines + network.embedding.bias).relu()
    expected = network.head(network.trunk(obs) * embedded)[..., 0]
    torch.testing.assert_close(network(obs, torch.tensor([tau])).quantile_hats[..., 0], expected)


def test_fractions_may_differ_by_row(discrete):
    network, obs = IQNModel(discrete, (6, 8)).q, torch.randn(2, 3)
    taus = torch.rand(2, 5)
    together = network(obs, taus).quantile_hats
    for row in range(2):
        torch.testing.assert_close(together[row], network(obs, taus[row]).quantile_hats[row])


def test_every_update_asks_at_fractions_of_its_own(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 4)
    first, second = (learner.predict(batch["obs"]).tau_hats for _ in range(2))
    assert first.shape == (4, 5)
    assert len({*first.flatten().tolist(), *second.flatten().tolist()}) == 40


def test_every_target_has_random_fractions_of_its_own(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 4)
    first, second = (learner.predict_next(batch["next_obs"])[0].tau_hats for _ in range(2))
    assert first.shape == (4, 5)
    assert len({*first.flatten().tolist(), *second.flatten().tolist()}) == 40
    assert 0.3 < torch.cat([first, second]).mean().item() < 0.7


def test_targets_are_quantiles_of_the_target_network(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 4)
    networks: list[tuple[Any, float]] = [(learner.target["q"], 2.0), (learner.model.q, 7.0)]
    with torch.no_grad():
        for network, value in networks:
            layer = network.head.advantage.layers[-1]
            layer.weight.zero_()
            layer.bias.fill_(value)
    expected = batch["rewards"] + 0.99 * (1 - batch["dones"]) * 2.0
    torch.testing.assert_close(learner.loss_target(batch), expected.unsqueeze(1).expand(4, 5))


def test_without_double_the_target_network_chooses(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 50)
    target: Any = learner.target["q"]
    with torch.no_grad():
        target.head.advantage.layers[-1].bias.copy_(torch.tensor([0.0, 0.0, 100.0, 0.0]))
    assert learner.predict_next(batch["next_obs"])[1].tolist() == [2] * 50


def test_targets_have_as_many_fractions_as_predictions_and_the_choice_its_own(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 4)
    assert learner.loss_target(batch).shape == (4, 5)
    assert learner.evaluate(learner.model.q, batch["obs"]).tau_hats.shape == (4, 7)


def test_without_draws_actions_go_by_the_mean_at_even_fractions(discrete):
    learner, obs = small(discrete), torch.randn(9, 3)
    even = learner.model.q(obs, midpoints(7)).quantile_hats
    assert torch.equal(learner.evaluate(learner.model.q, obs, deterministic=True).quantile_hats, even)
    assert torch.equal(learner.act(obs, deterministic=True).actions, even.mean(-1).argmax(-1))


def test_with_double_the_online_network_chooses(discrete, draw):
    learner, batch = small(discrete, double=True), draw(discrete, 50)
    bias = torch.tensor([0.0, 100.0, 0.0, 0.0])  # makes sure of action 1
    target: Any = learner.target["q"]
    with torch.no_grad():
        learner.model.q.head.advantage.layers[-1].bias.copy_(bias)
        target.head.advantage.layers[-1].bias.copy_(bias.flip(0))  # action 2
    assert learner.predict_next(batch["next_obs"])[1].tolist() == [1] * 50
