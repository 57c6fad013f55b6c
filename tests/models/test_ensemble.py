"""MLPMOPOEnsembleModel: members side by side, log-variances in bounds, inputs and outputs on their scales."""

from __future__ import annotations

import math

import pytest
import torch

from rl_training.models import MLPMOPOEnsembleModel


@pytest.fixture
def model() -> MLPMOPOEnsembleModel:
    torch.manual_seed(0)
    return MLPMOPOEnsembleModel(3, 2, (8, 8), members=4, elites=2)


def test_each_member_is_the_network_it_would_be_alone(model):
    obs, actions = torch.randn(5, 3), torch.randn(5, 2)
    seen = model(obs, actions)
    for member in range(4):
        x = torch.cat([obs, actions], 1)
        for number, layer in enumerate(model.layers()):
            x = x @ layer.weight[member] + layer.bias[member]
            x = x if number == 2 else x * torch.sigmoid(x)
        torch.testing.assert_close(seen.mean[member], x[:, :4])
        torch.testing.assert_close(seen.ends[member], x[:, -1])


def test_inputs_are_standardised_by_the_fitted_statistics(model):
    obs, actions = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]]), torch.tensor([[0.0, 5.0], [0.0, 9.0]])
    raw = model(torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([[0.0, -1.0], [0.0, 1.0]]))
    model.scale_inputs(obs, actions)  # means 2 and 7, standard deviations 1 and 2
    torch.testing.assert_close(model(obs, actions).mean, raw.mean)


def test_rows_for_all_are_rows_for_each(model):
    obs, actions = torch.randn(5, 3), torch.randn(5, 2)
    together, apart = model(obs, actions), model(obs.expand(4, 5, 3), actions.expand(4, 5, 2))
    assert all(a.equal(b) for a, b in zip(together, apart, strict=True))


def test_log_variances_stay_within_their_learned_bounds(model):
    with torch.no_grad():
        for layer in model.layers():
            layer.weight.mul_(1e3)
    log_var = model(torch.randn(200, 3), torch.randn(200, 2)).log_var
    assert log_var.min() >= -10
    assert log_var.max() <= 0.5 + 1e-4  # softplus adds a little to the lower bound, at both ends of the way
    assert log_var.max() - log_var.min() > 10
    log_var.sum().backward()
    assert (model.max_log_var.grad > 0).all()
    assert (model.min_log_var.grad > 0).all()


def test_weights_begin_small_and_biases_at_zero():
    model = MLPMOPOEnsembleModel(60, 4, (64,), members=7)
    first = model.layers()[0]
    cut_at_two = 0.88  # of a normal's deviation is left
    assert first.weight.std().item() == pytest.approx(cut_at_two / (2 * math.sqrt(64)), rel=0.05)
    assert first.weight.abs().max() <= 2 / (2 * 8)
    assert (first.bias == 0).all()


def test_inputs_are_standardised_and_a_still_column_is_left_alone(model):
    obs = torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 4.0]])
    model.scale_inputs(obs, torch.zeros(2, 2))
    assert model.input_mean.tolist() == [2, 5, 2, 0, 0]
    assert model.input_std.tolist() == [1, 1, 2, 1, 1]


def test_scaled_targets_come_out_in_their_own_units(model):
    obs, actions = torch.randn(5, 3), torch.randn(5, 2)
    plain = model(obs, actions)
    model.scale_targets(torch.tensor([[0.0, 0.0, 0.0, 10.0], [2.0, 4.0, 6.0, 30.0]]))  # deviations 1, 2, 3 and 10
    scaled = model(obs, actions)
    torch.testing.assert_close(scaled.mean[..., 3], 20 + 10 * plain.mean[..., 3])
    factors = torch.tensor([1.0, 2.0, 3.0, 10.0])
    torch.testing.assert_close((0.5 * scaled.log_var).exp(), factors * (0.5 * plain.log_var).exp())


def test_a_row_can_be_left_to_one_member(model):
    seen = model(torch.randn(3, 3), torch.randn(3, 2))
    chosen = seen.of(torch.tensor([2, 0, 3]))
    assert chosen.mean[0].equal(seen.mean[2, 0])
    assert chosen.log_var[1].equal(seen.log_var[0, 1])
    assert chosen.ends[2].equal(seen.ends[3, 2])


def test_more_elites_than_members_are_refused():
    with pytest.raises(ValueError, match="elites must be at most the number of members, 3, got 5"):
        MLPMOPOEnsembleModel(3, 2, members=3)
