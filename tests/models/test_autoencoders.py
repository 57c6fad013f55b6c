"""Pictures of any size go down to a map of a few pixels, and come back as they were."""

from __future__ import annotations

import pytest
import torch

from rl_training.models.autoencoders import Grid, ImageDecoder, ImageEncoder, StridedDecoder, Upsample2x
from rl_training.models.normed import LayerFactory
from rl_training.models.rssm import Latent


@pytest.mark.parametrize(
    ("side", "stages", "smallest"), [(64, 4, 4), (96, 4, 6), (84, 4, 6), (32, 3, 4), (16, 2, 4), (10, 1, 5), (5, 1, 3)]
)
def test_the_last_map_has_three_to_sixteen_pixels_a_side(side, stages, smallest):
    grid = Grid((3, side, side), 8)
    assert grid.widths == [16, 24, 32, 32][:stages]
    assert grid.map == (grid.widths[-1], smallest, smallest)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 64, 64), (4, 10, 10), (2, 21, 13)])
def test_a_picture_comes_back_in_its_own_size_and_range(shape):
    encoder = ImageEncoder(shape, 8)
    assert encoder(torch.rand(2, *shape)).shape == (2, encoder.features)
    decoder = ImageDecoder(shape, 8, deter=16, stoch=6, units=8, blocks=8)
    picture = decoder(Latent(torch.randn(2, 16), torch.randn(2, 2, 3)))
    assert picture.shape == (2, *shape)
    assert picture.min() >= 0
    assert picture.max() <= 1


@pytest.mark.parametrize(("strided", "share"), [(False, 0.8), (True, 1)])
def test_every_pixel_counts_even_in_a_size_that_must_be_padded(strided, share):
    torch.manual_seed(0)
    picture = torch.rand(1, 1, 21, 13, requires_grad=True)
    ImageEncoder((1, 21, 13), 8, strided=strided)(picture).square().sum().backward()
    assert picture.grad is not None
    assert (picture.grad != 0).float().mean() >= share  # unstrided, the brightest of four goes on, by channel another


@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 21, 13)])
def test_strided_pictures_have_channels_that_double_and_come_back_in_their_size(shape):
    encoder, decoder = ImageEncoder(shape, 8, strided=True), StridedDecoder(shape, 8, features=22)
    widths = [8, 16, 32, 64][: len(encoder.grid.widths)]
    assert encoder.grid.widths == widths
    assert encoder(torch.rand(2, *shape)).shape == (2, encoder.features)
    assert decoder(Latent(torch.randn(2, 16), torch.randn(2, 2, 3))).shape == (2, *shape)


@pytest.mark.parametrize(("release", "fan"), [("2024", 32 * 2 * 2), ("2023", (32 + 64) / 2 * 4 * 4)])
def test_weights_of_a_doubling_convolution_are_scaled_by_its_fan(release, fan):
    # Each output has 2 x 2 inputs in each of 32 channels. The release of 2023 averages all inputs and outputs.
    weight = LayerFactory(release).doubling_conv(32, 64).weight
    assert weight.std().item() == pytest.approx(fan**-0.5, rel=0.02)


def test_a_strided_decoder_begins_around_grey_and_finds_any_picture():
    torch.manual_seed(0)
    picture, latent = torch.rand(1, 1, 16, 16), Latent(torch.randn(1, 16), torch.randn(1, 2, 3))
    decoder = StridedDecoder((1, 16, 16), 8, features=22)
    torch.nn.init.zeros_(decoder.net[-1].get_parameter("weight"))
    assert decoder(latent).eq(0.5).all()
    optimizer = torch.optim.Adam(decoder.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        (decoder(latent) - picture).square().sum().backward()
        optimizer.step()
    assert (decoder(latent) - picture).abs().max() < 0.05


def test_a_doubled_picture_is_that_of_torch_and_so_is_its_gradient():
    picture, scales = torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(2, 3, 8, 10)
    doubled, theirs = Upsample2x()(picture), torch.nn.Upsample(scale_factor=2)(picture)
    assert doubled.equal(theirs)
    mine, expected = (torch.autograd.grad((each * scales).sum(), picture)[0] for each in (doubled, theirs))
    assert torch.allclose(mine, expected, atol=1e-6)
