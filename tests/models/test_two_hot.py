"""Numbers as two-hot weights of bins: what goes in comes out, and nothing learned is exactly nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rl_training.models.two_hot import TwoHot, TwoHotHead, mirrored_bins, symexp, symlog, two_hot

BINS = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0])


def weights_of(values: Tensor, bins: Tensor = BINS) -> Tensor:
    """Of all bins, [values, bins]."""
    beside, weights = two_hot(values, bins)
    return torch.zeros(len(values), len(bins)).scatter(-1, beside, weights)


def test_symlog_and_symexp_undo_one_another():
    values = torch.tensor([-1e6, -2.0, 0.0, 0.5, 1e6])
    assert symlog(torch.tensor(-1.0)).item() == pytest.approx(-0.6931472)  # -ln 2
    assert torch.allclose(symexp(symlog(values)), values, rtol=1e-4)


@pytest.mark.parametrize("symlog_spaced", [False, True])
def test_bins_are_255_around_an_exact_zero_and_each_has_its_exact_negative(symlog_spaced):
    bins = mirrored_bins(symlog_spaced=symlog_spaced)
    assert len(bins) == 255
    assert bins[127] == 0
    assert bins.equal(-bins.flip(0))
    assert (bins.diff() > 0).all()
    assert bins[-1].item() == pytest.approx(20.0 if symlog_spaced else 4.85165194e8, rel=1e-6)  # e^20 - 1


def test_a_value_is_shared_by_the_two_bins_beside_it_by_nearness():
    assert weights_of(torch.tensor([1.5, -0.25])).tolist() == [[0, 0, 0, 0.75, 0.25], [0, 0.25, 0.75, 0, 0]]


def test_a_value_on_a_bin_is_one_hot_and_beyond_the_ends_it_is_the_end():
    weights = weights_of(torch.tensor([-3.0, 0.0, 1.0, 3.0, 99.0, -99.0]))
    assert weights.equal(torch.eye(5)[[0, 2, 3, 4, 4, 0]])


@pytest.mark.parametrize("squashed", [False, True])
def test_encoding_and_decoding_keep_numbers_of_any_size(squashed):
    bins = mirrored_bins(symlog_spaced=squashed)
    size = torch.logspace(-2, 8, 200)
    values = torch.cat([-size, torch.zeros(1), size])
    weights = weights_of(symlog(values) if squashed else values, bins)
    assert torch.allclose(weights.sum(-1), torch.ones(401))
    assert ((weights > 0).sum(-1) <= 2).all()
    decoded = TwoHot(weights.clamp_min(1e-30).log(), bins, squashed).mean()
    assert torch.allclose(decoded, values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, -3.7])
@pytest.mark.parametrize("squashed", [False, True])
def test_even_logits_mean_exactly_zero_which_a_plain_sum_does_not(squashed, level):
    bins = mirrored_bins(symlog_spaced=squashed)
    assert TwoHot(torch.full((3, 255), level), bins, squashed).mean().tolist() == [0.0, 0.0, 0.0]


def test_rounding_of_chances_far_away_does_not_reach_the_mean():
    bins = mirrored_bins(symlog_spaced=False)
    generator = torch.Generator().manual_seed(0)
    logits = 1e-6 * torch.randn(20, 255, generator=generator)
    logits[:, 131] = 9.0  # of 0.61, against 254 others
    expected = bins[131] * (logits[:, 131].exp() - logits[:, 123].exp()) / logits.exp().sum(-1)
    torch.testing.assert_close(TwoHot(logits, bins).mean(), expected, rtol=1e-5, atol=0)
    assert (logits.softmax(-1) * bins).sum(-1).abs().max() > 1


def test_the_last_layer_is_exact_where_others_are_not():
    head = TwoHotHead(6, (8,), squashed=False)
    with torch.no_grad():
        head.net[-1].get_parameter("weight").normal_()
        with torch.autocast("cpu", torch.bfloat16):
            logits = head(torch.randn(50, 6)).logits
    assert logits.dtype == torch.float32
    assert not logits.equal(logits.bfloat16().float())


def test_a_new_head_says_exactly_zero_whatever_it_sees():
    head = TwoHotHead(6, (8, 8), squashed=False)
    assert head(100 * torch.randn(50, 6)).mean().eq(0).all()


def test_the_loss_is_the_cross_entropy_to_the_two_bins():
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    log_probs = logits.log_softmax(-1)
    expected = -(0.75 * log_probs[3] + 0.25 * log_probs[4])
    assert TwoHot(logits, BINS).loss(torch.tensor(1.5)).item() == pytest.approx(expected.item())


def test_a_squashed_loss_compares_in_symlog():
    logits, value = torch.randn(5), symexp(torch.tensor(0.5))  # half way between the bins 0 and 1
    expected = -logits.log_softmax(-1)[2:4].mean()
    assert TwoHot(logits, BINS, squashed=True).loss(value).item() == pytest.approx(expected.item(), rel=1e-5)


def test_targets_get_no_gradient():
    values = torch.ones(2, requires_grad=True)
    loss = TwoHot(torch.randn(2, 5, requires_grad=True), BINS).loss(values).sum()
    loss.backward()
    assert values.grad is None


def test_the_mean_weighs_a_bin_against_its_negative():
    logits = torch.full((255,), -torch.inf)
    logits[127 + 10], logits[127 - 10] = math.log(0.6), math.log(0.4)
    spacing = 40 / 254
    mean = TwoHot(logits, mirrored_bins(symlog_spaced=True)).mean()
    assert mean.item() == pytest.approx(0.6 * 10 * spacing - 0.4 * 10 * spacing)
