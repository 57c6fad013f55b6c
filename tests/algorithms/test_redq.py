"""REDQ: targets of a random pair of critics, an actor that maximises the mean of all, and how often each learns."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from rl_training.algorithms import REDQAlgorithm, REDQConfig, Updater, redq
from rl_training.algorithms.core.learner import frozen_subset
from rl_training.models.values import Critic


def test_subsets_are_of_different_critics_and_all_of_them_come_up():
    seen = {tuple(sorted(redq.random_subset(2, 4, torch.device("cpu")).tolist())) for _ in range(200)}
    assert seen == set(combinations(range(4), 2))


def test_a_few_critics_say_what_they_say_among_all(draw, box):
    critic, rows = Critic(3, 2, (8,), copies=5), draw(box, 6)
    everyone = critic(rows["obs"], rows["actions"])
    few = frozen_subset(critic, torch.tensor([3, 0]))(rows["obs"], rows["actions"])
    torch.testing.assert_close(few, everyone[[3, 0]])


def test_every_critic_is_fitted_to_the_minimum_of_the_drawn_ones(box, draw, monkeypatch):
    monkeypatch.setattr(redq, "random_subset", lambda *_: torch.tensor([4, 1]))
    learner, rows = REDQAlgorithm.build(box, hidden_sizes=(8,), num_critics=5, gamma=0.9, temperature=0.5), draw(box, 3)
    torch.manual_seed(1)
    loss = learner.critics(rows)
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["next_obs"]).sample_with_log_prob()
    values = learner.target["critic"](rows["next_obs"], actions)
    next_q = torch.minimum(values[4], values[1]) - 0.5 * log_prob
    y = (rows["rewards"] + 0.9 * torch.tensor([1.0, 0.0, 1.0]) * next_q).detach()  # the second row terminates
    errors = [(q - y).square().mean() for q in learner.model.critic(rows["obs"], rows["actions"])]
    assert loss.terms.keys() == {"critic_loss"}
    torch.testing.assert_close(loss.terms["critic_loss"], 0.5 * sum(errors))


def test_the_target_is_the_minimum_of_two_random_target_critics_of_ten(box):
    learner = REDQAlgorithm.build(box, hidden_sizes=(8,))
    with torch.no_grad():  # target critic i has the value i everywhere, every online critic 100
        for critic, values in (
            (learner.target["critic"], torch.arange(10.0)),
            (learner.model.critic, torch.tensor(100.0)),
        ):
            critic.get_parameter("net.2.weight").zero_()
            critic.get_parameter("net.2.bias").copy_(values.expand(10).view(10, 1, 1))
    found = torch.stack([learner.next_value(torch.zeros(1, 3), torch.zeros(1, 2)) for _ in range(400)])
    assert set(found.flatten().tolist()) <= set(range(9))  # the largest is never the minimum
    assert found.mean().item() == pytest.approx(11 / 3 - 1, abs=0.5)  # minimum of two different numbers of 0 to 9


def test_the_actor_climbs_the_mean_of_all_critics(box, draw, reached):
    learner, rows = REDQAlgorithm.build(box, hidden_sizes=(8,), num_critics=5, temperature=0.5), draw(box, 6)
    torch.manual_seed(1)
    loss = learner.policy(rows).terms
    torch.manual_seed(1)
    actions, log_prob = learner.model.actor(rows["obs"]).sample_with_log_prob()
    q = learner.model.critic(rows["obs"], actions).mean(0)
    torch.testing.assert_close(loss["actor_loss"], (0.5 * log_prob - q).mean())
    assert reached(loss["actor_loss"], learner) == {"actor"}


def test_of_twenty_updates_all_move_critics_and_targets_and_the_last_the_actor_too(box, draw):
    learner, rows = REDQAlgorithm.build(box, hidden_sizes=(8,)), draw(box, 4)
    updater = Updater([learner])
    watched = {"critic": learner.model.critic, "target": learner.target["critic"], "actor": learner.model.actor}
    moves = dict.fromkeys(watched, 0)
    for number in range(20):
        before = {name: next(part.parameters()).clone() for name, part in watched.items()}
        result = updater.update(rows)
        for name, part in watched.items():
            moves[name] += not next(part.parameters()).equal(before[name])
        assert ("actor_loss" in result.metrics) == (number == 19)
    assert moves == {"critic": 20, "target": 20, "actor": 1}


def test_ten_critics_are_one_batched_product_with_glorots_weights(box):
    learner = REDQAlgorithm.build(box, hidden_sizes=(16,))
    first, last = learner.model.critic.net[0], learner.model.critic.net[2]
    assert (first.weight.shape, last.weight.shape) == ((10, 5, 16), (10, 16, 1))
    bound = (6 / (5 + 16)) ** 0.5
    assert 0.9 * bound < first.weight.abs().max().item() <= bound
    assert [layer.bias.abs().max().item() for layer in (first, last, learner.model.actor.net[0])] == [0, 0, 0]


def test_more_critics_in_a_subset_than_there_are_is_refused():
    with pytest.raises(ValueError, match="subset_size must be at most num_critics = 2, got 3"):
        REDQConfig(num_critics=2, subset_size=3)
