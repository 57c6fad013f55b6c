"""Dreamer's layers of the 2023 release, against numbers computed by the authors' code (danijar/dreamerv3, 8fa35f8)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from rl_training.models.autoencoders import ImageEncoder, StridedDecoder
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.models.normed import ChannelLayerNorm, LayerFactory
from rl_training.models.rssm import RSSM, Latent
from rl_training.types import EnvSpec

EMBEDDED, ACTIONS, DETER, HIDDEN, LATENTS, CLASSES = 3, 2, 4, 5, 2, 3
MAKE = LayerFactory("2023")


def wave(start: int, *shape: int) -> Tensor:
    return (start + torch.arange(math.prod(shape))).double().sin().float().view(shape)


@pytest.fixture
def rssm() -> RSSM:
    """Every weight of the authors' RSSM is `wave(n, ...)`, with n its place in their order and inputs first."""
    sizes = {"deter": DETER, "hidden": HIDDEN, "latents": LATENTS, "classes": CLASSES}
    rssm, stoch = RSSM(EMBEDDED, ACTIONS, **sizes, blocks=1, make=MAKE), LATENTS * CLASSES
    cell: nn.Module = rssm.cell
    from_stoch, from_action = wave(0, stoch + ACTIONS, HIDDEN).mT.split((stoch, ACTIONS), 1)
    recalled, seen = wave(6, DETER + EMBEDDED, HIDDEN).mT.split((DETER, EMBEDDED), 1)
    cell.load_state_dict({
        "from_stoch.weight": from_stoch, "from_action.weight": from_action,
        "norm.weight": wave(1, HIDDEN), "norm.bias": wave(2, HIDDEN),
        "gates.0.weight": wave(3, DETER + HIDDEN, 3 * DETER).mT,
        "gates.1.weight": wave(4, 3 * DETER), "gates.1.bias": wave(5, 3 * DETER),
    })  # fmt: skip
    rssm.load_state_dict({
        **{f"cell.{name}": value for name, value in cell.state_dict().items()},
        "recalled.weight": recalled, "seen.weight": seen,
        "posterior.0.weight": wave(7, HIDDEN), "posterior.0.bias": wave(8, HIDDEN),
        "posterior.2.weight": wave(9, HIDDEN, stoch).mT, "posterior.2.bias": wave(10, stoch),
        "prior.0.0.weight": wave(11, DETER, HIDDEN).mT, "prior.0.1.weight": wave(12, HIDDEN),
        "prior.0.1.bias": wave(13, HIDDEN), "prior.1.weight": wave(14, HIDDEN, stoch).mT,
        "prior.1.bias": wave(15, stoch), "initial": wave(16, DETER),
    })  # fmt: skip
    return rssm


def observe(rssm: RSSM) -> tuple[Tensor, Tensor, Tensor]:
    """Recurrent states, posteriors and priors of three rows, the last of which is a first step."""
    stoch = torch.eye(CLASSES)[torch.tensor([[0, 1], [2, 0], [1, 1]])]
    actions, first = torch.eye(ACTIONS)[[0, 1, 1]], torch.tensor([0.0, 0.0, 1.0])
    start = Latent(wave(20, 3, DETER), stoch)
    states = rssm.observe(wave(100, 3, 1, EMBEDDED), actions.unsqueeze(1), first.unsqueeze(1), start, None)
    return states.latent.deter[:, 0], states.posterior[:, 0], states.prior[:, 0]


def test_a_step_of_the_rssm_gives_the_states_and_probabilities_of_the_authors_code(rssm):
    deter, posterior, prior = observe(rssm)
    for found, expected in (
        (deter[0], [0.73381, 0.38506, -0.40158, -0.32454]),
        (deter[1], [-0.64559, -0.12550, 0.51580, 0.66165]),
        (posterior[0].flatten(), [-1.49646, -1.55877, -0.56972, -1.02570, -0.79173, -1.66922]),
        (posterior[1].flatten(), [-0.16838, -2.46292, -2.66243, -3.43714, -1.05358, -0.47940]),
        (prior[0].flatten(), [-0.29183, -1.48706, -3.60926, -3.20867, -2.33247, -0.14788]),
        (prior[1].flatten(), [-0.31791, -1.51638, -2.94076, -2.79807, -1.77507, -0.26188]),
    ):
        assert found.tolist() == pytest.approx(expected, abs=2e-5)


def test_a_first_step_continues_from_the_learned_state_and_its_most_likely_latents(rssm):
    deter, posterior, prior = observe(rssm)
    assert deter[2].tolist() == pytest.approx([-0.21132, -0.50685, -0.44319, 0.08440], abs=2e-5)
    expected = [-1.78850, -1.66168, -0.44166, -0.88354, -0.81701, -1.93151]
    assert posterior[2].flatten().tolist() == pytest.approx(expected, abs=2e-5)
    expected = [-0.31534, -1.37603, -4.02412, -3.41070, -2.78263, -0.09970]
    assert prior[2].flatten().tolist() == pytest.approx(expected, abs=2e-5)


def test_the_initial_state_is_trained_by_first_steps_alone(rssm):
    deter, _, _ = observe(rssm)
    for row, is_trained in ((1, False), (2, True)):
        (gradient,) = torch.autograd.grad(deter[row].sum(), rssm.initial, retain_graph=True)
        assert bool(gradient.any()) == is_trained


def test_the_size_s_has_as_many_weights_as_on_atari_in_the_release():
    with torch.device("meta"):
        size = SIZES["s"]._replace(release="2023")
        model = DreamerModel(EnvSpec((3, 64, 64), "discrete", 6, obs_dtype="uint8"), size)
    world = sum(p.numel() for name, p in model.named_parameters() if not name.startswith(("actor.", "critic.")))
    assert world == 15_687_811
    assert [sum(p.numel() for p in part.parameters()) for part in (model.actor, model.critic)] == [1_053_702, 1_181_439]


def test_weights_are_scaled_by_the_mean_of_inputs_and_outputs():
    torch.manual_seed(0)
    encoder = ImageEncoder((3, 64, 64), 32, strided=True, make=MAKE)
    decoder = StridedDecoder((3, 64, 64), 32, features=1536, make=MAKE)
    for weight, fan in (
        (encoder.get_parameter("net.3.weight"), 16 * (32 + 64) / 2),
        (decoder.get_parameter("net.0.weight"), 16 * (256 + 128) / 2),
        (MAKE.linear(300, 512, inputs=1536).weight, (1536 + 512) / 2),
    ):
        assert weight.std().item() == pytest.approx(fan**-0.5, rel=0.02)


def test_layers_before_a_norm_have_no_bias_and_channels_are_normed_at_each_pixel():
    encoder = ImageEncoder((3, 64, 64), 4, strided=True, make=MAKE)
    assert [layer.bias is None for layer in encoder.modules() if isinstance(layer, nn.Conv2d)] == [True] * 4
    assert MAKE.dense(3, 4)[0].bias is None
    images = wave(0, 2, 5, 3, 3)
    centred = images - images.mean(1, keepdim=True)
    expected = centred / (centred.square().mean(1, keepdim=True) + 1e-3).sqrt()
    assert torch.allclose(ChannelLayerNorm(5)(images), expected, atol=1e-6)
