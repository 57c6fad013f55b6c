"""Returns, dreams, and what actor and critic learn from them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rl_training.algorithms import Updater
from rl_training.algorithms.core.ops import lambda_returns, percentile
from rl_training.algorithms.dreamer import ImaginedRollout

# Returns


def test_returns_of_three_steps_by_hand_with_an_end_within():
    rewards = torch.tensor([9.0, 1.0, 2.0, 4.0])  # that of the first state was paid before
    discounts = torch.tensor([9.0, 0.5, 0.0, 0.5])  # the third state is the last of its episode
    values = torch.tensor([9.0, 10.0, 20.0, 30.0])
    # From the end: 4 + 0.5 * 30 = 19; 2 + 0 = 2; 1 + 0.5 * (0.2 * 10 + 0.8 * 2) = 2.8
    returns = lambda_returns(rewards, discounts, values, torch.full((4,), 0.8))
    assert returns.tolist() == pytest.approx([2.8, 2.0, 19.0])


def test_returns_are_those_of_a_plain_loop():
    rewards, values = torch.randn(2, 9, 4)
    discounts, traces = torch.rand(2, 9, 4)
    expected = torch.zeros(8, 4)
    for row in range(4):
        ahead = values[8, row]
        for t in range(7, -1, -1):
            mixed = (1 - traces[t + 1, row]) * values[t + 1, row] + traces[t + 1, row] * ahead
            ahead = rewards[t + 1, row] + discounts[t + 1, row] * mixed
            expected[t, row] = ahead
    assert torch.allclose(lambda_returns(rewards, discounts, values, traces), expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_percentiles_are_those_of_torch(count):
    numbers = torch.randn(count)
    for share in (0.05, 0.95):
        assert percentile(numbers.sort().values, share).item() == pytest.approx(numbers.quantile(share).item())


def test_constant_returns_have_a_scale_of_one(small):
    scale, ends = small().return_scale(torch.full((3, 4), 50.0))
    assert scale == 1
    assert [end.item() for end in ends.values()] == pytest.approx([0.5, 0.5])  # a hundredth of the way from 0


def test_the_scale_is_the_range_of_returns_slowly_followed_and_no_shift_moves_it(small):
    learner, returns = small(), torch.linspace(0, 1000, 101)
    scale, _ = learner.return_scale(returns)
    assert scale.item() == pytest.approx(9.0)  # a hundredth of 950 - 50
    assert learner.return_scale(returns + 777)[0].item() == pytest.approx(9.0, rel=1e-4)


def test_an_update_moves_the_ends_of_the_scale(used, windows):
    learner = used()
    with torch.no_grad():
        learner.model.reward.net[-1].bias[200] = 20.0
    learner.update(windows())
    assert learner.return_high.item() > 0


# Dreams


def test_a_dream_is_weighed_by_the_chance_to_get_there_without_the_end_of_its_own_action(used, dream):
    learner = used(gamma=0.9, discounted_continue=False)
    seen = dream(learner)
    probabilities = learner.model.continuation(seen.features).squeeze(-1).sigmoid()
    assert seen.discounts[0].tolist() == [1, 0, 1, 1, 1]  # known, not guessed; nothing is learned after an end
    assert torch.allclose(seen.discounts[1:], 0.9 * probabilities[1:])
    assert seen.weights[0].tolist() == [1, 0, 1, 1, 1]
    assert torch.allclose(seen.weights[2, 2:], 0.81 * probabilities[1, 2:] * probabilities[2, 2:])
    assert torch.allclose(seen.rewards, learner.model.reward(seen.features).mean())


def test_a_continuation_that_has_the_discount_in_it_is_not_discounted_again(used, dream):
    learner = used(gamma=0.5)
    seen = dream(learner)
    assert torch.allclose(seen.discounts[1:], learner.model.continuation(seen.features[1:]).squeeze(-1).sigmoid())


@pytest.mark.parametrize("discounted", [True, False])
def test_a_hard_continuation_is_one_or_zero_times_the_discount(used, dream, discounted):
    learner = used(gamma=0.9, hard_continue=True, discounted_continue=discounted)
    seen = dream(learner)
    likely = learner.model.continuation(seen.features[1:]).squeeze(-1) > 0
    assert 0 < likely.float().mean() < 1
    assert seen.discounts[0].tolist() == [1, 0, 1, 1, 1]
    assert torch.allclose(seen.discounts[1:], 0.9 * likely)


def test_actor_and_critic_by_a_plain_loop(used, dream):
    learner = used(entropy_weight=0.01, return_lambda=0.8)
    learner.return_high += 700.0
    seen = dream(learner)
    loss, returns = learner.behaviour_loss(seen)
    model, count = learner.model, 3 * 5
    actor = critic = 0.0
    for row in range(5):
        values = [model.critic(seen.features[t, row]).mean().item() for t in range(4)]
        ahead, weight = values[3], {}
        for t in range(3):
            weight[t] = math.prod(seen.discounts[s, row].item() for s in range(t + 1))
        for t in (2, 1, 0):
            mixed = 0.2 * values[t + 1] + 0.8 * ahead
            ahead = seen.rewards[t + 1, row].item() + seen.discounts[t + 1, row].item() * mixed
            assert returns[t, row].item() == pytest.approx(ahead, rel=1e-4)
            features = seen.features[t, row]
            policy = model.actor(features)
            advantage = (ahead - values[t]) / loss.metrics["dreamer_return_scale"].item()
            log_prob = policy.logits[seen.actions[t, row]].item()
            entropy = -(policy.logits.exp() * policy.logits).sum().item()
            actor -= weight[t] * (log_prob * advantage + 0.01 * entropy) / count
            slow = learner.target["critic"](features).mean()
            guess = model.critic(features)
            critic += weight[t] * (guess.loss(torch.tensor(ahead)) + guess.loss(slow)).item() / count
    assert loss.metrics["dreamer_return_scale"] > 600
    assert loss.terms["dreamer_actor_loss"].item() == pytest.approx(actor, rel=1e-3)
    assert loss.terms["dreamer_critic_loss"].item() == pytest.approx(critic, rel=1e-4)


def test_without_advantages_the_actor_loss_is_minus_the_weighted_entropy(small):
    learner = small(entropy_weight=0.5)  # whose initial values are exactly 0
    with torch.no_grad():
        learner.model.actor.net[-1].weight.zero_()  # a uniform policy over three actions
    features, zeros = torch.randn(2, 4, learner.model.size.deter + 16), torch.zeros(2, 4)
    weights = torch.tensor([[1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]])
    seen = ImaginedRollout(features, torch.zeros(1, 4, dtype=torch.int64), weights, zeros, zeros)
    loss = learner.behaviour_loss(seen)[0].terms["dreamer_actor_loss"]
    assert loss.item() == pytest.approx(-0.75 * 0.5 * math.log(3), rel=1e-5)


def test_an_action_that_pays_becomes_likelier(small):
    learner = small(entropy_weight=0.0, learning_rate=1e-2)
    features = torch.randn(2, 50, learner.model.size.deter + 16)
    actions = torch.arange(50).remainder(3)[None]
    rewards = torch.stack([torch.zeros(50), (actions[0] == 1).float()])  # on arrival
    seen = ImaginedRollout(
        features, actions, torch.ones(2, 50), rewards, torch.stack([torch.ones(50), torch.zeros(50)])
    )
    updater = Updater([learner])
    updater.loss = lambda batch, phase: learner.behaviour_loss(seen)[0]
    before = learner.model.actor(features[0]).logits.exp()[:, 1].mean()
    for _ in range(20):
        updater.step({}, ("behaviour",))
    assert learner.model.actor(features[0]).logits.exp()[:, 1].mean() > before + 0.01


def test_lived_states_are_valued_by_what_was_paid_up_to_the_ends_of_episodes(used, windows):
    learner, batch = used(gamma=0.9, return_lambda=0.7), windows()
    features, ahead = torch.randn(3, 6, learner.model.size.deter + 16), torch.randn(3, 6)
    found = learner.replay_value_loss(features, ahead, batch)
    expected = 0.0
    for row in range(3):
        value = ahead[row, 5].item()
        for t in range(4, -1, -1):
            trace = 0.7 * (1 - batch["is_last"][row, t + 1].item())
            discount = 0.9 * (1 - batch["dones"][row, t + 1].item())
            value = batch["rewards"][row, t + 1].item() + discount * (
                (1 - trace) * ahead[row, t + 1].item() + trace * value
            )
            if batch["is_last"][row, t]:
                continue  # what follows is another episode
            guess, slow = learner.model.critic(features[row, t]), learner.target["critic"](features[row, t]).mean()
            expected += (guess.loss(torch.tensor(value)) + guess.loss(slow)).item() / (3 * 5)
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_dreams_go_on_from_a_truncated_state_and_end_at_a_terminal_one(used, windows, monkeypatch):
    learner, batch = used(), windows(rows=1, steps=4)
    dreams: list[ImaginedRollout] = []
    batch |= {"is_last": torch.tensor([[0.0, 1.0, 0.0, 1.0]]), "dones": torch.tensor([[0.0, 0.0, 0.0, 1.0]])}
    evaluate = learner.evaluate

    def kept(*inputs: Any) -> ImaginedRollout:
        dreams.append(evaluate(*inputs))
        return dreams[-1]

    monkeypatch.setattr(learner, "evaluate", kept)
    learner.loss(batch)
    assert dreams[0].weights[0].tolist() == [1, 1, 1, 0]  # the second state is cut by a time limit
