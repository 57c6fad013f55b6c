"""FQF: fractions that are proposed, the slope by which they learn, and two networks that learn apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import FQFAlgorithm, FQFConfig, fraction_gradient
from rl_training.models import MLPFQFNetwork, ProposedQuantiles

TAUS = torch.tensor([0.0, 0.1, 0.35, 0.6, 0.7, 1.0], dtype=torch.float64)
Curve = Callable[[Tensor], Tensor]


def hats(taus: Tensor) -> Tensor:
    return (taus[:-1] + taus[1:]) / 2


def distance(curve: Curve, taus: Tensor, steps: Tensor) -> float:
    """The 1-Wasserstein distance between a curve and a step for each part of [0, 1], by fine sums."""
    total = 0.0
    for low, high, step in zip(taus[:-1], taus[1:], steps, strict=True):
        points = low + (high - low) * (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
        total += float((curve(points) - step).abs().mean() * (high - low))
    return total


def slopes(curve: Curve, steps_at: Callable[[Tensor], Tensor], by: float = 1e-4) -> Tensor:
    """Of the distance by each inner tau, from two distances each."""
    found = []
    for index in range(1, len(TAUS) - 1):
        moved = by * torch.eye(len(TAUS), dtype=torch.float64)[index]
        up, down = (distance(curve, taus, steps_at(taus)) for taus in (TAUS + moved, TAUS - moved))
        found.append((up - down) / (2 * by))
    return torch.tensor(found, dtype=torch.float64)


def rising(fractions: Tensor) -> Tensor:
    return fractions**3 + fractions


def wavy(fractions: Tensor) -> Tensor:
    return torch.sin(9 * fractions)


def test_where_the_curve_rises_the_slope_is_the_papers_and_that_of_the_distance():
    inner, steps = rising(TAUS[1:-1]), rising(hats(TAUS))
    found = fraction_gradient(inner, steps)
    torch.testing.assert_close(found, 2 * inner - steps[1:] - steps[:-1])
    torch.testing.assert_close(found, slopes(rising, lambda taus: rising(hats(taus))), atol=1e-5, rtol=0)


def test_where_the_curve_falls_too_the_slope_is_that_of_the_distance_to_steps_that_stay():
    steps = wavy(hats(TAUS))
    found = fraction_gradient(wavy(TAUS[1:-1]), steps)
    torch.testing.assert_close(found, slopes(wavy, lambda taus: steps), atol=1e-5, rtol=0)
    assert not torch.allclose(found, 2 * wavy(TAUS[1:-1]) - steps[1:] - steps[:-1])


def test_a_slope_by_hand():
    # at the tau the curve is 1; the step before is 0, the one after 3: nearer to the first, so the tau should grow
    assert fraction_gradient(torch.tensor([[1.0]]), torch.tensor([[0.0, 3.0]])).tolist() == [[1.0 - 2.0]]


def bent(fractions: Tensor) -> Tensor:
    return (40 * (fractions - 0.9)).sigmoid()  # flat but near 0.9


def test_descending_the_slope_brings_fractions_to_where_the_curve_bends():
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        taus = torch.cat([torch.zeros(1), logits.softmax(0).cumsum(0)])
        gradient = fraction_gradient(bent(taus[1:-1]), bent(hats(taus))).detach()
        (gradient * taus[1:-1]).sum().backward()
        optimizer.step()
    even = torch.linspace(0, 1, 5, dtype=torch.float64)
    found = taus.detach()
    assert distance(bent, found, bent(hats(found))) < distance(bent, even, bent(hats(even))) / 2


def small(spec, **options) -> FQFAlgorithm:
    return FQFAlgorithm.build(spec, hidden_sizes=(6, 8), num_quantiles=5, num_cosines=3, **options)


def test_the_entropy_of_the_fractions_is_maximised(discrete, draw):
    loss = small(discrete, entropy_coefficient=0.1).loss(draw(discrete, 6))
    assert loss.terms["entropy_loss"].item() == pytest.approx(-0.1 * math.log(5), abs=1e-3)  # fractions start out even


def test_fractions_begin_at_zero_end_at_one_rise_and_start_out_even(discrete):
    seen = small(discrete).model(torch.randn(7, 3))
    assert seen.quantile_hats.shape == (7, 4, 5)
    assert (seen.taus[:, 0] == 0).all()
    assert (seen.taus[:, -1] == 1).all()
    assert (seen.taus.diff(dim=-1) > 0).all()
    torch.testing.assert_close(seen.taus, torch.linspace(0, 1, 6).expand(7, 6), atol=0.01, rtol=0)
    torch.testing.assert_close(seen.tau_hats, (seen.taus[:, :-1] + seen.taus[:, 1:]) / 2)
    torch.testing.assert_close(seen.entropy, torch.full((7,), math.log(5)), atol=1e-3, rtol=0)


def test_values_weigh_each_quantile_by_the_width_of_its_part():
    taus = torch.tensor([[0.0, 0.5, 0.75, 1.0]])
    seen = ProposedQuantiles(torch.tensor([[[0.0, 4.0, 8.0]]]), taus, hats(taus[0]).unsqueeze(0), torch.zeros(1))
    assert seen.expected().tolist() == [[0.25 * 4 + 0.25 * 8]]  # the plain mean would be 4


def reached_parameters(term: Tensor, learner: FQFAlgorithm) -> set[str]:
    trained = {name: parameter for name, parameter in learner.named_parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(term, list(trained.values()), allow_unused=True, retain_graph=True)
    return {name.split(".")[2] for name, gradient in zip(trained, gradients, strict=True) if gradient is not None}


@pytest.mark.parametrize("noisy", [False, True])
def test_the_quantiles_and_the_fractions_learn_apart(discrete, draw, noisy):
    learner = small(discrete, noisy=noisy)
    terms = learner.loss(draw(discrete, 6)).terms
    assert reached_parameters(terms["loss"], learner) == {"trunk", "embedding", "head"}
    assert reached_parameters(terms["fraction_loss"], learner) == {"proposal"}
    assert reached_parameters(terms["entropy_loss"], learner) == {"proposal"}


def test_the_fraction_loss_has_the_slope_as_its_gradient_by_the_taus(discrete, draw):
    learner, batch = small(discrete), draw(discrete, 1)
    seen, inner = learner.predict(batch["obs"])
    taus = seen.taus.detach().requires_grad_()
    loss = learner.row_losses((seen._replace(taus=taus), inner), torch.zeros(1, 5), batch["actions"])
    (found,) = torch.autograd.grad(loss.terms["fraction_loss"].sum(), taus)
    action = int(batch["actions"])
    assert found[0, [0, -1]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(found[0, 1:-1], fraction_gradient(inner[0, action], seen.quantile_hats[0, action]))


def test_the_returns_at_inner_taus_are_those_of_the_same_noisy_network(discrete):
    network, obs = small(discrete, noisy=True).model.q, torch.randn(2, 3)
    noise = torch.randn(network.noise_size)
    seen, inner = network.with_inner(obs, noise)
    torch.testing.assert_close(inner, network.at(network.trunk(obs), seen.taus[:, 1:-1], noise))
    torch.testing.assert_close(seen.quantile_hats, network(obs, noise).quantile_hats)


def test_targets_use_the_fractions_that_the_target_network_proposes_at_the_next_observation(discrete, draw):
    learner, batch = small(discrete, gamma=1.0), draw(discrete, 6)
    network: Any = learner.target["q"]
    with torch.no_grad():
        network.proposal.bias.copy_(torch.tensor([3.0, 0.0, 0.0, 0.0, 0.0]))
        seen = network(batch["next_obs"])
    best = seen.expected().argmax(-1)
    following = torch.stack([seen.quantile_hats[row, best[row]] for row in range(6)])
    expected = batch["rewards"].unsqueeze(1) + (1 - batch["dones"]).unsqueeze(1) * following
    torch.testing.assert_close(learner.loss_target(batch), expected)


def test_fractions_have_a_slow_rate_of_their_own(discrete, draw):
    learner, batch = small(discrete, learning_rate=0.01), draw(discrete, 6)
    before = {name: value.detach().clone() for name, value in learner.model.q.named_parameters()}
    learner.update(batch)
    moves = {name: (value - before[name]).abs().max().item() for name, value in learner.model.q.named_parameters()}
    assert 0 < moves["proposal.bias"] < 1e-8  # the paper's rate is 2.5e-9
    assert moves["embedding.bias"] == pytest.approx(0.01, rel=1e-3)


def test_the_metrics_and_errors_that_users_read(discrete, draw):
    learner = FQFAlgorithm(MLPFQFNetwork(3, 4, (8, 8), num_quantiles=6))
    result = learner.update(draw(discrete, 6), global_step=1)
    assert {"loss", "fraction_loss", "entropy_loss", "q_value_mean"} <= result.metrics.keys()
    assert result.metrics["fraction_entropy"].item() == pytest.approx(1.0, abs=1e-3)
    assert learner.last_td_errors is result.priorities
    assert result.priorities is not None
    assert result.priorities.shape == (6,)


def test_the_network_alone_acts_by_expected_returns():
    network, obs = MLPFQFNetwork(obs_dim=3, action_dim=4, hidden_sizes=(8, 8)), torch.randn(5, 3)
    assert torch.equal(network.act(obs), network(obs).expected().argmax(-1))


def test_collapsed_fractions_give_a_warning(discrete):
    learner = small(discrete)
    assert learner.warnings({"fraction_entropy": 0.9}) == []
    assert learner.warnings({}) == []  # nothing was learned yet
    (warning,) = learner.warnings({"fraction_entropy": 0.31})
    assert "collapsed (entropy 0.31 of the maximum). Lower fraction_learning_rate or raise" in warning


def test_one_fraction_is_no_distribution():
    with pytest.raises(ValueError, match="num_quantiles"):
        FQFConfig(num_quantiles=1)
