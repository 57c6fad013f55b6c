"""The recurrent state-space model: what it forgets, what it draws, and where its gradients go."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, OneHotCategorical, kl_divergence

from rl_training.models.normed import LayerFactory, RMSNorm, block_linear
from rl_training.models.rssm import (
    RSSM,
    BlockGRU,
    Latent,
    categorical_kl,
    entropy,
    sample_one_hot,
    straight_through,
    unimix_log_probs,
)

EMBEDDED, ACTIONS, DETER, LATENTS, CLASSES = 5, 3, 16, 4, 6


@pytest.fixture(params=["2024", "2023"])
def rssm(request: pytest.FixtureRequest) -> RSSM:
    torch.manual_seed(0)
    sizes = {"deter": DETER, "hidden": 12, "latents": LATENTS, "classes": CLASSES}
    return RSSM(EMBEDDED, ACTIONS, **sizes, blocks=8, make=LayerFactory(request.param))


def start(rows: int, fill: float = 0.0) -> Latent:
    return Latent(torch.full((rows, DETER), fill), torch.full((rows, LATENTS, CLASSES), fill))


def window(rows: int = 2, steps: int = 5, seed: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embedded observations, actions, marks of first steps (the first one alone) and noise."""
    draws = torch.Generator().manual_seed(seed)
    is_first = torch.zeros(rows, steps)
    is_first[:, 0] = 1
    embedded, actions = (torch.randn(rows, steps, width, generator=draws) for width in (EMBEDDED, ACTIONS))
    return embedded, actions, is_first, torch.randn(rows, steps, LATENTS, CLASSES, generator=draws)


def test_no_class_falls_below_its_share_of_the_even_mix_and_all_sum_to_one():
    probs = unimix_log_probs(torch.tensor([[1000.0, 0.0, -1000.0, 0.0]]), 0.01).exp()
    assert probs.tolist()[0] == pytest.approx([0.99 + 0.0025, 0.0025, 0.0025, 0.0025])


def test_a_hundredth_of_every_latents_distribution_is_uniform(rssm):
    logits = torch.zeros(1, LATENTS * CLASSES)
    logits[:, ::CLASSES] = 1000.0
    expected = [0.99 + 0.01 / 6, *[0.01 / 6] * 5]  # six classes
    for probs in rssm.log_probs(logits).exp()[0].tolist():
        assert probs == pytest.approx(expected)


def test_draws_follow_the_mixed_probabilities():
    logits = torch.tensor([3.0, 0.0, -20.0]).expand(20_000, 3)
    torch.manual_seed(0)
    noise = -(-torch.rand(20_000, 3).log()).log()
    drawn = sample_one_hot(unimix_log_probs(logits, 0.3), noise).mean(0)
    expected = 0.7 * logits[0].softmax(-1) + 0.1
    assert torch.allclose(drawn, expected, atol=0.01)  # four standard errors


def test_without_noise_the_most_likely_class_is_drawn():
    assert sample_one_hot(torch.tensor([[0.1, 0.7, 0.2]]).log(), None).tolist() == [[0, 1, 0]]


def test_what_is_drawn_goes_on_to_the_bit_with_the_gradient_of_its_probabilities():
    logits = torch.randn(50, CLASSES, requires_grad=True)
    log_probs, weights = logits.log_softmax(-1), torch.randn(50, CLASSES)
    drawn = sample_one_hot(log_probs.detach(), None)
    passed = straight_through(drawn, log_probs)
    assert passed.equal(drawn)
    mine, expected = (torch.autograd.grad((each * weights).sum(), logits, retain_graph=True)[0]
                      for each in (passed, logits.softmax(-1)))  # fmt: skip
    assert torch.allclose(mine, expected)


def test_the_divergence_is_summed_over_latents_and_is_that_of_torch():
    p, q = (torch.randn(7, LATENTS, CLASSES).log_softmax(-1) for _ in range(2))
    expected = kl_divergence(Independent(OneHotCategorical(logits=p), 1), Independent(OneHotCategorical(logits=q), 1))
    assert torch.allclose(categorical_kl(p, q), expected, atol=1e-6)


def test_the_norm_adds_its_epsilon_to_the_mean_square():
    outputs = RMSNorm(2)(torch.tensor([[0.01, -0.01]]))
    assert outputs[0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])  # 0.01 / sqrt(1e-4 + 1e-4)


def test_the_memory_is_a_gru_whose_blocks_see_their_own_part_and_all_inputs():
    torch.manual_seed(0)
    cell = BlockGRU(DETER, 12, LATENTS * CLASSES, ACTIONS, blocks=8)
    latent = Latent(torch.randn(3, DETER), torch.randn(3, LATENTS, CLASSES))
    action = cell.from_action(torch.randn(3, ACTIONS))
    inputs = torch.cat([cell.from_deter(latent.deter), cell.from_stoch(latent.stoch.flatten(1)), action], -1)
    wide = []
    for block in range(8):
        own = slice(2 * block, 2 * block + 2)
        mine = latent.deter[:, own] @ cell.from_block.weight[block] + cell.from_block.bias[block]
        wide.append(mine + inputs @ cell.from_inputs.weight[own].mT)
    hidden = torch.nn.functional.silu(cell.norm(torch.cat(wide, -1)))
    expected = []
    for block in range(8):
        own = slice(2 * block, 2 * block + 2)
        gates = hidden[:, own] @ cell.gates.weight[block] + cell.gates.bias[block]
        reset, candidate, update = gates[:, :2].sigmoid(), gates[:, 2:4], (gates[:, 4:] - 1).sigmoid()
        expected.append(update * (reset * candidate).tanh() + (1 - update) * latent.deter[:, own])
    assert torch.allclose(cell(latent, action), torch.cat(expected, -1), atol=1e-6)


def test_what_is_believed_at_a_first_step_does_not_depend_on_what_came_before(rssm):
    embedded, actions, is_first, noise = window()
    is_first[:, 3] = 1
    other = [each.clone() for each in (embedded, actions, noise)]
    for each in other:
        each[:, :3] = torch.randn_like(each[:, :3])
    other[1][:, 3] = 7.0  # the action before a first step is another episode's
    one = rssm.observe(embedded, actions, is_first, start(2), noise)
    another = rssm.observe(other[0], other[1], is_first, start(2, fill=math.nan), other[2])
    assert not one.posterior[:, 2].equal(another.posterior[:, 2])
    for mine, theirs in (
        (one.posterior, another.posterior),
        (one.prior, another.prior),
        (one.latent.deter, another.latent.deter),
    ):
        assert mine[:, 3:].equal(theirs[:, 3:])


def test_what_came_before_is_remembered_where_nothing_begins(rssm):
    embedded, actions, is_first, noise = window()
    other = actions.clone()
    other[:, 1] = -other[:, 1]
    one, another = (rssm.observe(embedded, each, is_first, start(2), noise) for each in (actions, other))
    assert one.prior[:, 0].equal(another.prior[:, 0])
    assert not one.prior[:, 4].equal(another.prior[:, 4])


def test_a_window_in_two_halves_is_the_whole_window(rssm):
    embedded, actions, is_first, noise = window()
    whole = rssm.observe(embedded, actions, is_first, start(2), noise)
    first = rssm.observe(embedded[:, :2], actions[:, :2], is_first[:, :2], start(2), noise[:, :2])
    end = Latent(first.latent.deter[:, -1], first.latent.stoch[:, -1])
    second = rssm.observe(embedded[:, 2:], actions[:, 2:], is_first[:, 2:], end, noise[:, 2:])
    assert torch.allclose(torch.cat([first.posterior, second.posterior], 1), whole.posterior, atol=1e-6)


def test_the_prior_of_a_step_is_what_predict_draws_from_the_state_before(rssm):
    embedded, actions, is_first, noise = window()
    seen = rssm.observe(embedded, actions, is_first, start(2), noise)
    before = Latent(seen.latent.deter[:, 1], seen.latent.stoch[:, 1])
    ahead = rssm.predict(before, actions[:, 2], noise[:, 2])
    assert torch.allclose(ahead.deter, seen.latent.deter[:, 2], atol=1e-6)
    assert ahead.stoch.equal(sample_one_hot(seen.prior[:, 2], noise[:, 2]))


def test_the_gradient_of_a_predicted_class_is_that_of_its_probability(rssm):
    _, actions, _, noise = window()
    action, weights = actions[:, 2].clone().requires_grad_(), torch.randn(rssm.shape)
    predicted = rssm.predict(start(2), action, noise[:, 2])
    (found,) = torch.autograd.grad((weights * predicted.stoch).sum(), action)
    probabilities = rssm.log_probs(rssm.prior(rssm.cell(start(2), rssm.cell.from_action(action)))).exp()
    (expected,) = torch.autograd.grad((weights * probabilities).sum(), action)
    assert found.abs().sum() > 0
    assert torch.allclose(found, expected)


def test_gradients_of_a_later_step_reach_the_first_observation_through_what_was_drawn(rssm):
    embedded, actions, is_first, noise = window()
    embedded.requires_grad_()
    later = rssm.observe(embedded, actions, is_first, start(2), noise).prior[:, 4]
    (gradient,) = torch.autograd.grad(later.square().sum(), embedded)
    assert gradient[:, 0].abs().sum() > 0
    assert gradient[:, 4].abs().sum() == 0  # the prior has not seen it


@pytest.mark.parametrize(
    "layer", [LayerFactory().linear(400, 300), block_linear(4, 100, 300)], ids=["linear", "blocks"]
)
def test_weights_are_cut_normals_of_the_scale_of_all_that_comes_in(layer: nn.Module):
    weight = layer.get_parameter("weight")
    assert weight.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.02)
    assert weight.abs().max().item() <= 2 * 1.1368 / math.sqrt(400)
    assert not layer.get_parameter("bias").any()


@pytest.mark.parametrize(("low", "close"), [(False, 1e-5), (True, 2e-2)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("drawn", [True, False], ids=["drawn", "likeliest"])
@pytest.mark.parametrize("cut", [True, False], ids=["a new episode inside", "one episode"])
def test_steps_that_give_weights_no_gradients_leave_them_those_of_the_plain_loop(rssm, cut, drawn, low, close):
    embedded, actions, is_first, noise = window(rows=3)
    is_first[1, 3] = float(cut)
    scales = [torch.randn(3, 5, *shape) for shape in ((DETER,), *[(LATENTS, CLASSES)] * 3)]
    inputs = [embedded.requires_grad_(), actions.requires_grad_(), *rssm.parameters()]

    def gradients(by_steps: bool) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            step = partial(rssm.step_with_weights, rssm.detached_weights()) if by_steps else None
            states = rssm.observe(embedded, actions, is_first, start(3, 0.5), noise if drawn else None, step)
        outputs = (*states.latent, states.posterior, states.prior)
        total = sum((output * scale).sum() for output, scale in zip(outputs, scales, strict=True))
        return torch.autograd.grad(total, inputs)

    for mine, plain in zip(gradients(by_steps=True), gradients(by_steps=False), strict=True):
        assert plain.any()
        assert (mine - plain).norm() <= close * plain.norm()


def test_entropy_is_summed_over_the_latents_and_averaged_over_states():
    even = torch.full((2, 5, LATENTS, CLASSES), 1 / CLASSES).log()
    assert entropy(even).item() == pytest.approx(LATENTS * math.log(CLASSES))
