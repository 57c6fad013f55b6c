"""Fitted Q evaluation: its targets by hand, in both action spaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rl_training.algorithms import FQE, Updater, fqe_loss
from rl_training.types import Batch, EnvSpec

DISCRETE = EnvSpec((1,), "discrete", 2)
BOX = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-1.0,), action_high=(1.0,))
PIXELS = EnvSpec((3, 36, 36), "discrete", 2, obs_dtype="uint8")


def two_values() -> FQE:
    """In every state action 0 is worth 1 and action 1 is worth 2."""
    learner = FQE.build(DISCRETE, hidden_sizes=(), gamma=0.5)
    for part in (learner.model, learner.target):
        part.get_parameter("q.net.0.weight").data.zero_()
        part.get_parameter("q.net.0.bias").data = torch.tensor([1.0, 2.0])
    return learner


@pytest.fixture
def row() -> Callable[..., Batch]:
    def one(policy_next_actions: list[int], *, done: float = 0.0, truncated: float = 0.0) -> Batch:
        """Action 0 paid 1, and led to where the policy would choose among these."""
        return {
            "obs": torch.zeros(1, 1),
            "actions": torch.tensor([0]),
            "rewards": torch.tensor([1.0]),
            "next_obs": torch.zeros(1, 1),
            "dones": torch.tensor([done]),
            "truncated": torch.tensor([truncated]),
            "policy_next_actions": torch.tensor([policy_next_actions]),
        }

    return one


def test_the_loss_is_the_mean_squared_error():
    loss = fqe_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 5.0]))
    assert loss.terms["loss"].item() == (1 + 9) / 2
    assert (loss.metrics["q_value_mean"].item(), loss.metrics["target_q_mean"].item()) == (1.5, 2.5)


def test_the_target_values_what_the_policy_would_do_and_not_what_is_best(row):
    targets = [two_values().loss(row([action])).metrics["target_q_mean"].item() for action in (0, 1)]
    assert targets == [1 + 0.5 * 1, 1 + 0.5 * 2]


def test_the_target_network_values_the_next_actions(row):
    learner = two_values()
    learner.model.get_parameter("q.net.0.bias").data = torch.tensor([7.0, 8.0])
    metrics = learner.loss(row([1])).metrics
    assert metrics["q_value_mean"].item() == 7
    assert metrics["target_q_mean"].item() == 1 + 0.5 * 2


def test_the_next_actions_are_valued_at_the_next_observation(row):
    learner = two_values()
    learner.target.get_parameter("q.net.0.weight").data = torch.tensor([[3.0], [3.0]])  # of the observation
    found = learner.loss({**row([1]), "next_obs": torch.ones(1, 1)}).metrics["target_q_mean"].item()
    assert found == 1 + 0.5 * (2 + 3)


def test_a_value_of_several_choices_adds_what_each_is_worth_to_a_network_without_hidden_layers():
    spec = EnvSpec((1,), "multi_discrete", 2, action_shape=(2,), action_sizes=(3, 2), action_starts=(0, 0))
    learner = FQE.build(spec, hidden_sizes=())
    learner.model.q.net[0].weight.data = torch.tensor([[0.0, 1.0, 2.0, 3.0, 10.0, 20.0]])  # obs, and both choices
    learner.model.q.net[0].bias.data.zero_()
    actions = torch.tensor([[[0, 1], [2, 0]], [[1, 1], [1, 0]]])  # two samples in each of two rows
    values = learner.values(learner.model.q, torch.zeros(2, 1), actions)
    assert values.tolist() == [[1 + 20, 3 + 10], [2 + 20, 2 + 10]]


def test_the_network_reads_normalised_observations():
    learner = FQE.build(BOX, hidden_sizes=())
    learner.model.q.net[0].weight.data = torch.tensor([[3.0, 0.0]])
    learner.model.q.net[0].bias.data.zero_()
    learner.normalizer.get_buffer("mean").fill_(4.0)
    learner.normalizer.get_buffer("std").fill_(2.0)
    assert learner.values(learner.model.q, torch.tensor([[10.0]]), torch.zeros(1, 1, 1)).item() == 3 * (10 - 4) / 2


def test_several_draws_of_the_policy_are_averaged(row):
    loss = two_values().loss(row([0, 1, 1, 1]))
    assert loss.metrics["target_q_mean"].item() == 1 + 0.5 * (1 + 2 + 2 + 2) / 4


def test_a_time_limit_has_a_future_and_an_end_has_none(row):
    learner = two_values()
    cut, ended = learner.loss(row([1], truncated=1.0)), learner.loss(row([1], done=1.0))
    assert cut.metrics["target_q_mean"].item() == 1 + 0.5 * 2
    assert ended.metrics["target_q_mean"].item() == 1


def test_box_values_depend_on_state_and_action(row):
    learner = FQE.build(BOX, hidden_sizes=())
    learner.model.q.net[0].weight.data = torch.tensor([[3.0, 2.0]])  # of the observation and of the action
    learner.model.q.net[0].bias.data.zero_()
    values = learner.values(learner.model.q, torch.tensor([[1.0], [10.0]]), torch.tensor([[[0.5], [1.0]]] * 2))
    assert values.tolist() == [[3 + 1, 3 + 2], [30 + 1, 30 + 2]]


def test_no_gradient_reaches_the_target(row):
    learner = two_values()
    learner.loss(row([1])).total.backward()
    assert all(parameter.grad is None for parameter in learner.target.parameters())
    assert all(parameter.grad is not None for parameter in learner.model.parameters())


def prepared(spec: EnvSpec, returns: list[float], *, rewards: list[float], dones: list[float]) -> FQE:
    learner, obs = FQE.build(spec, gamma=0.9), torch.arange(float(len(returns))).unsqueeze(1)
    columns = {"returns_to_go": returns, "rewards": rewards, "dones": dones}
    learner.prepare({"obs": obs, **{name: torch.tensor(column) for name, column in columns.items()}})
    return learner


def test_the_fit_starts_at_the_level_of_the_datas_returns():
    learner = prepared(BOX, [-1000.0, -500.0], rewards=[0.0, 0.0], dones=[0.0, 0.0])
    assert (learner.value_mean.item(), learner.value_std.item()) == (-750, 250)
    assert learner.normalizer(torch.tensor([[0.5]])).item() == 0


def test_returns_that_are_all_the_same_still_leave_room_to_learn():
    assert prepared(BOX, [3.0, 3.0], rewards=[0.0, 0.0], dones=[0.0, 0.0]).value_std.item() == 1


@pytest.mark.parametrize(("dones", "bounds"), [([0.0, 0.0], (20, 50)), ([0.0, 1.0], (0, 50))])
def test_values_are_bounded_by_the_worst_and_the_best_reward_for_ever(dones, bounds):
    learner = prepared(BOX, [1.0, 2.0], rewards=[2.0, 5.0], dones=dones)  # 2 / (1 - 0.9), 5 / (1 - 0.9)
    assert (learner.lowest.item(), learner.highest.item()) == pytest.approx(bounds)


def test_a_target_beyond_the_bounds_is_not_believed(row):
    learner = two_values()
    learner.highest.fill_(1.25)
    assert learner.loss(row([1])).metrics["target_q_mean"].item() == 1.25


@pytest.mark.parametrize("spec", [BOX, DISCRETE])
def test_hidden_layers_have_layer_norm(spec):
    kinds = [type(layer).__name__ for layer in FQE.build(spec, hidden_sizes=(4, 4)).model.q.net]
    assert kinds == ["Linear", "LayerNorm", "ReLU"] * 2 + ["Linear"]


def test_pixels_go_through_an_encoder():
    learner = FQE.build(PIXELS)
    obs = torch.randint(256, (4, 3, 36, 36), dtype=torch.uint8)
    learner.prepare({"obs": obs, **dict.fromkeys(("returns_to_go", "rewards", "dones"), torch.zeros(4))})
    assert learner.values(learner.model.q, obs, torch.zeros(4, 1, dtype=torch.int64)).shape == (4, 1)


def test_a_population_computes_what_its_members_compute_alone(row):
    batch = row([1])
    alone, together = two_values(), [two_values(), two_values()]
    Updater([alone]).update(batch)
    Updater(together).update({name: column.expand(2, *column.shape) for name, column in batch.items()})
    for member in together:
        for name, value in alone.named_parameters():
            torch.testing.assert_close(member.get_parameter(name), value)


@pytest.mark.parametrize("option", [{"gamma": 1.0}, {"tau": 0.0}, {"gama": 0.9}])
def test_a_bad_option_is_refused_by_name(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        FQE.build(BOX, **option)


def test_rows_may_have_a_discount_of_their_own(row):
    batch = {**row([1]), "discounts": torch.tensor([0.25])}
    assert two_values().loss(batch).metrics["target_q_mean"].item() == 1 + 0.25 * 2


def test_the_largest_discount_bounds_the_values():
    learner = FQE.build(DISCRETE, hidden_sizes=(), gamma=0.5)
    ones = torch.ones(2)
    learner.prepare(
        {"obs": torch.zeros(2, 1), "rewards": ones, "dones": 0 * ones, "returns_to_go": ones,
         "discounts": torch.tensor([0.5, 0.75])}
    )  # fmt: skip
    assert (learner.lowest.item(), learner.highest.item()) == (4, 4)
