"""Extreme Q-learning: the Gumbel loss by hand, and what it changes of IQL."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rl_training.algorithms import IQLPredictions, XQLAlgorithm, XQLConfig, gumbel_rescale_loss, iql_loss, xql_loss
from rl_training.algorithms.xql import xql_value_loss


def value_slopes(error: list[float], temperature: float, clip: float) -> list[float]:
    """How the loss changes with the value of each row, that is, against the error."""
    errors = torch.tensor(error, requires_grad=True)
    (slope,) = torch.autograd.grad(gumbel_rescale_loss(errors, temperature, clip), errors)
    return (-slope).tolist()


def test_gumbel_loss_by_hand():
    error = torch.tensor([-3.0, -1.0, 0.0, 2.0, 9.0])  # z = -1.5, -0.5, 0, 1, 4.5, and exp(4.5) divides all
    rows = [math.exp(z - 4.5) - (z + 1) * math.exp(-4.5) for z in (-1.5, -0.5, 0.0, 1.0, 4.5)]
    assert rows == pytest.approx([0.008033, 0.001183, 0.0, 0.007979, 0.938901], abs=1e-6)
    assert gumbel_rescale_loss(error, 2.0, 7.0).item() == pytest.approx(sum(rows) / 5)
    assert gumbel_rescale_loss(error, 2.0, 7.0).item() == pytest.approx(0.191219, abs=1e-6)
    expected = [0.000863, 0.000437, 0.0, -0.001909, -0.098889]
    assert value_slopes(error.tolist(), 2.0, 7.0) == pytest.approx(expected, abs=1e-6)


def test_the_divisor_is_at_least_one_over_e():
    error = torch.tensor([-8.0, -6.0, -10.0])  # the largest z is -3
    assert gumbel_rescale_loss(error, 2.0, 7.0).item() == pytest.approx((8.204633 + 5.571899 + 10.891443) / 3)


def test_an_error_above_the_clip_pulls_no_value():
    slopes = value_slopes([20.0, -1.0], 2.0, 5.0)
    assert slopes[0] == 0
    assert slopes[1] > 0


@pytest.mark.parametrize(("temperature", "expected"), [(0.1, 0.930690), (1.0, 0.620115), (100.0, 0.501250)])
def test_the_value_at_rest_is_the_soft_maximum(temperature, expected):
    """Of the values 0 and 1: T log((1 + exp(1 / T)) / 2), near 1 when T is small and near 0.5 when it is large."""
    assert temperature * math.log((1 + math.exp(1 / temperature)) / 2) == pytest.approx(expected, abs=1e-5)
    slopes = value_slopes([0.0 - expected, 1.0 - expected], temperature, 7.0)
    assert sum(slopes) == pytest.approx(0.0, abs=1e-5)


def predictions(advantage: list[float]) -> IQLPredictions:
    rows = len(advantage)
    return IQLPredictions(torch.zeros(2, rows), torch.zeros(rows), torch.tensor(advantage), torch.ones(rows))


def test_the_vanilla_value_loss_is_the_expectile():
    advantage = torch.tensor([2.0, -1.0])
    vanilla = XQLConfig(vanilla_value_loss=True, expectile=0.7)
    assert xql_value_loss(advantage, vanilla).item() == pytest.approx((0.7 * 4 + 0.3 * 1) / 2)
    assert xql_value_loss(advantage, XQLConfig()).item() == gumbel_rescale_loss(advantage, 2.0, 7.0).item()


def test_the_critics_error_is_linear_beyond_twenty():
    seen = predictions([0.0, 0.0])._replace(q=torch.tensor([[2.0, 0.0], [30.0, 0.0]]))
    assert xql_loss(seen, XQLConfig()).terms["critic_loss"].item() == (0.5 * 2**2 + 20 * (30 - 10)) / 2


def test_the_actor_is_weighed_as_in_iql():
    seen, config = predictions([0.5, 9.0]), XQLConfig(beta=3.0, max_advantage_weight=50.0)
    assert xql_loss(seen, config).terms["actor_loss"] == iql_loss(seen, config).terms["actor_loss"]
    assert xql_loss(seen, config).metrics["advantage_weight_mean"].item() == pytest.approx((math.exp(1.5) + 50) / 2)


def test_the_learner_has_the_huber_loss_for_its_critics_and_the_gumbel_loss_for_its_value(box, draw):
    learner, rows = XQLAlgorithm.build(box, hidden_sizes=(8,), gamma=0.9, loss_temperature=0.5), draw(box, 4)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        next_value = learner.model.value(rows["next_obs"])
        y = rows["rewards"] + 0.9 * (1 - rows["dones"]) * next_value
        q = learner.model.critic(rows["obs"], rows["actions"])
        z = (
            torch.minimum(*learner.target["critic"](rows["obs"], rows["actions"])) - learner.model.value(rows["obs"])
        ) / 0.5
    assert (q - y).abs().max() < 20  # where the Huber loss is half of the square
    critic = learner.critics(rows).terms["critic_loss"]
    torch.testing.assert_close(critic, 0.5 * (q - y).square().mean(1).sum())
    scale = max(math.exp(z.max().item()), 1 / math.e)
    value = learner.policy(rows).terms["value_loss"]
    torch.testing.assert_close(value, ((z.exp() - z - 1) / scale).mean())


def test_each_term_trains_its_own_network_alone(box, draw, reached):
    learner = XQLAlgorithm.build(box, hidden_sizes=(8,))
    terms = learner.loss(draw(box, 4)).terms
    assert reached(terms["critic_loss"], learner) == {"critic"}
    assert reached(terms["value_loss"], learner) == {"value"}
    assert reached(terms["actor_loss"], learner) == {"actor"}


def test_the_state_value_alone_has_layer_norms_before_its_activations(box):
    model = XQLAlgorithm.build(box, hidden_sizes=(8, 8)).model
    assert [type(layer).__name__ for layer in model.value.net[:3]] == ["Linear", "LayerNorm", "ReLU"]
    assert isinstance(model.value.net[-1], nn.Linear)
    normed = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    assert normed == ["value.net.1", "value.net.4"]


@pytest.mark.parametrize("option", ["loss_temperature", "max_value_diff_exp", "max_advantage_weight"])
def test_options_that_are_not_positive_are_refused(option):
    with pytest.raises(ValueError, match=option):
        XQLConfig(**{option: 0})
