"""Deep Q-learning on two states whose action values are written in a table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms import DQNAlgorithm
from rl_training.algorithms.dqn import importance_weights
from rl_training.types import Batch, EnvSpec

TWO_STATES = EnvSpec((2,), "discrete", 2)
LAYER = "head.advantage.layers.0"  # the only one, without hidden layers


def tabular(online: list[list[float]], target: list[list[float]], **options: Any) -> DQNAlgorithm:
    """Observations are one-hot states, so that a layer's columns are the rows of a table."""
    learner = DQNAlgorithm.build(TWO_STATES, hidden_sizes=(), **options)
    for network, table in ((learner.model.q, online), (learner.target["q"], target)):
        network.load_state_dict({f"{LAYER}.weight": torch.tensor(table).T, f"{LAYER}.bias": torch.zeros(2)})
    return learner


def step(dones: float = 0.0, truncated: float = 0.0) -> Batch:
    """From state 0 by action 0 to state 1, for a reward of 1."""
    return {
        "obs": torch.tensor([[1.0, 0.0]]),
        "actions": torch.tensor([0]),
        "rewards": torch.tensor([1.0]),
        "next_obs": torch.tensor([[0.0, 1.0]]),
        "dones": torch.tensor([dones]),
        "truncated": torch.tensor([truncated]),
    }


ONLINE, TARGET = [[1.0, 2.0], [3.0, 0.0]], [[0.0, 0.0], [1.0, 5.0]]


def test_plain_targets_take_the_best_action_of_the_target_network():
    loss = tabular(ONLINE, TARGET, gamma=0.5).loss(step())
    assert loss.metrics["target_q_mean"].item() == 1 + 0.5 * 5
    assert loss.total.item() == pytest.approx(2.5 - 0.5)  # an error of 2.5, in the linear part of Huber


def test_double_targets_value_the_action_the_online_network_prefers():
    loss = tabular(ONLINE, TARGET, gamma=0.5, double=True).loss(step())
    assert loss.metrics["target_q_mean"].item() == 1 + 0.5 * 1
    assert loss.total.item() == pytest.approx(0.5**2 / 2)  # an error of 0.5, in the square part


def test_the_target_stops_at_a_termination_and_not_at_a_time_limit():
    learner = tabular(ONLINE, TARGET, gamma=0.5)
    assert learner.loss(step(dones=1.0)).metrics["target_q_mean"].item() == 1.0
    assert learner.loss(step(truncated=1.0)).metrics["target_q_mean"].item() == 3.5


def test_only_the_value_of_the_action_taken_is_trained(reached):
    learner = tabular(ONLINE, TARGET, double=True)
    loss = learner.loss(step()).total
    assert reached(loss, learner) == {"q"}
    (gradient,) = torch.autograd.grad(loss, learner.model.q.head.advantage.layers[0].weight)
    assert gradient.nonzero().tolist() == [[0, 0]]  # action 0 at state 0


def test_after_several_steps_the_rows_own_discounts_count():
    rows = {**step(), "discounts": torch.tensor([0.125])}  # three steps at a gamma of 0.5
    assert tabular(ONLINE, TARGET, gamma=0.5).loss(rows).metrics["target_q_mean"].item() == 1 + 0.125 * 5


def test_priorities_are_absolute_errors():
    learner = tabular(ONLINE, TARGET, gamma=0.5)
    result = learner.update(step())
    assert result.priorities is learner.last_td_errors
    assert learner.last_td_errors is not None
    assert learner.last_td_errors.tolist() == [2.5]  # from 1 to 1 + 0.5 * 5


def test_rows_drawn_often_weigh_less_and_the_rarest_one():
    probabilities, halfway = torch.tensor([4.0, 1.0, 0.25]), torch.tensor(0.5)
    assert importance_weights(probabilities, halfway).tolist() == [0.25, 0.5, 1.0]  # 1/2, 1 and 2, over 2


def test_the_weights_multiply_the_losses_of_their_rows():
    one, other = step(), step(dones=1.0)
    both = {name: torch.cat([one[name], other[name]]) for name in one}
    learner = tabular(ONLINE, TARGET, gamma=0.5, priority_beta=1.0)
    loss = learner.loss({**both, "probabilities": torch.tensor([2.0, 0.5])})
    assert loss.total.item() == pytest.approx((0.25 * 2.0 + 1.0 * 0.0) / 2)  # errors of 2.5, and of 0 where it ends


def test_targets_are_copied_at_every_nth_update_and_rest_between():
    learner = tabular(ONLINE, TARGET, target_interval=3, learning_rate=0.1)
    slow, fast = (part.get_parameter("q.head.advantage.layers.0.weight") for part in (learner.target, learner.model))
    seen = []
    for _ in range(7):
        before = slow.clone()
        learner.update(step())
        seen.append("copied" if torch.equal(slow, fast) else "rested" if torch.equal(slow, before) else "moved")
    assert seen == ["rested", "rested", "copied", "rested", "rested", "copied", "rested"]


def test_adam_has_the_epsilon_of_the_option():
    (group,) = tabular(ONLINE, TARGET, learning_rate=0.1, adam_eps=1.5e-4).parameter_groups()
    assert (group.kind, group.learning_rate, group.eps) == ("adam", 0.1, 1.5e-4)


def states(count: int) -> torch.Tensor:
    return torch.tensor([[1.0, 0.0]]).expand(count, 2)  # where ONLINE prefers action 1


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_each_row_tosses_its_own_coin_and_draws_its_own_action(epsilon, share):
    learner = tabular(ONLINE, TARGET, epsilon_start=epsilon)
    actions = learner.act(states(10_000)).actions
    # one coin for all rows would give 0.5 or 1; an action read off the coin would give 0.5 in the middle case
    assert actions.float().mean().item() == pytest.approx(share, abs=0.02)  # four standard errors of 0.5 / 100


def test_random_actions_are_uniform_and_repeat_with_their_generator(discrete):
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,))
    first, second = (learner.act(torch.randn(8_000, 3), generator=torch.Generator().manual_seed(2)) for _ in range(2))
    counts = torch.bincount(first.actions, minlength=4)
    assert ((counts - 2_000).square() / 2_000).sum() < 16.27  # 0.999 quantile of chi-square, three degrees
    assert torch.equal(first.actions, second.actions)


def test_deterministic_acting_is_greedy_and_draws_nothing():
    learner, before = tabular(ONLINE, TARGET), torch.get_rng_state()
    assert learner.act(torch.eye(2), deterministic=True).actions.tolist() == [1, 0]
    assert torch.equal(before, torch.get_rng_state())


def test_epsilon_falls_in_a_line_and_stays_at_its_end():
    schedule = tabular(ONLINE, TARGET, exploration_fraction=0.2).schedules()["epsilon"]
    assert [schedule.at(done, 0.0) for done in (0.0, 0.1, 0.2, 1.0)] == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_a_scheduled_epsilon_is_what_acting_reads():
    learner = tabular(ONLINE, TARGET, epsilon_start=1.0)
    learner.updater.schedule("epsilon", 0.0)
    assert learner.act(states(100)).actions.tolist() == [1] * 100


def test_the_exponent_of_the_weights_rises_to_one_where_rows_are_drawn_by_priority():
    schedule = tabular(ONLINE, TARGET, prioritized=True).schedules()["priority_beta"]
    assert [schedule.at(done, 0.0) for done in (0.0, 0.5, 1.0)] == pytest.approx([0.4, 0.7, 1.0])
    assert "priority_beta" not in tabular(ONLINE, TARGET).schedules()


def noisy(**options: Any) -> DQNAlgorithm:
    return DQNAlgorithm.build(TWO_STATES, hidden_sizes=(8,), noisy=True, **options)


def test_a_noisy_network_explores_by_its_noise_and_not_by_epsilon(silence):
    learner, obs = noisy(epsilon_start=1.0), torch.randn(1, 2).expand(200, 2)
    assert set(learner.act(obs, generator=torch.Generator().manual_seed(0)).actions.tolist()) == {0, 1}
    silence(learner)
    assert len(set(learner.act(obs, generator=torch.Generator().manual_seed(0)).actions.tolist())) == 1
    assert learner.schedules() == {}


def test_every_loss_of_a_noisy_network_has_noise_of_its_own():
    learner = noisy()
    assert len({learner.loss(step()).total.item() for _ in range(5)}) == 5


def test_a_noisy_network_acts_by_its_means_when_deterministic():
    learner, obs = noisy(), torch.randn(30, 2)
    assert torch.equal(learner.act(obs, deterministic=True).actions, learner.model.q(obs).argmax(-1))
