"""From observations to features: vectors pass, pixels are convolved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.models.encoders import GridCNN, NatureCNN, encoder_for, floats_by_arithmetic
from rl_training.types import EnvSpec


def spec(obs_shape: tuple[int, ...], obs_dtype: str = "float32") -> EnvSpec:
    return EnvSpec(obs_shape, "discrete", 2, obs_dtype=obs_dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "features"), [((5,), "float32", 5), ((2, 3), "float32", 6), ((128,), "uint8", 128)]
)
def test_vectors_are_flattened_and_otherwise_left_alone(shape, dtype, features):
    encoder, width = encoder_for(spec(shape, dtype))
    obs = torch.arange(2 * features).view(2, *shape).to(getattr(torch, dtype))
    assert width == features
    assert torch.equal(encoder(obs), torch.arange(2 * features).view(2, features).float())


def test_atari_frames_give_512_features_through_a_flat_layer_of_3136():
    encoder, width = encoder_for(spec((4, 84, 84), "uint8"))
    assert isinstance(encoder, NatureCNN)
    assert encoder.out[0].in_features == 64 * 7 * 7  # 84 -> 20 -> 9 -> 7
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, width) == (2, 512)


def test_without_the_dense_layer_the_features_are_the_convolutions():
    encoder, width = encoder_for(spec((4, 84, 84), "uint8"), dense=False)
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, width) == (2, 64 * 7 * 7)


def test_bytes_become_numbers_between_zero_and_one():
    encoder = NatureCNN((1, 36, 36))
    white = torch.full((1, 1, 36, 36), 255, dtype=torch.uint8)
    torch.testing.assert_close(encoder(white), encoder.out(encoder.conv(torch.ones(1, 1, 36, 36))))


def test_on_a_cpu_convolutions_read_images_whose_channels_are_innermost_in_memory():
    encoder, images = NatureCNN((3, 36, 36)), torch.randint(256, (2, 3, 36, 36), dtype=torch.uint8)
    read: list[torch.Tensor] = []
    encoder.conv.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    features = encoder(images)
    assert read[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(read[0], images.float() / 255)
    torch.testing.assert_close(features, encoder.out(encoder.conv(images.float() / 255)))


@pytest.mark.parametrize(("dense", "features"), [(True, 128), (False, 16 * 8 * 8)])  # 10 -> 8
def test_small_worlds_go_through_one_small_convolution(dense, features):
    encoder, width = encoder_for(spec((7, 10, 10), "uint8"), dense=dense)
    assert isinstance(encoder, GridCNN)
    assert encoder(torch.zeros(2, 7, 10, 10, dtype=torch.uint8)).shape == (2, width) == (2, features)


@pytest.mark.parametrize(("side", "network"), [(35, GridCNN), (36, NatureCNN)])
def test_the_shorter_side_decides_which_network_a_picture_goes_through(side, network):
    assert isinstance(encoder_for(spec((1, 84, side), "uint8"))[0], network)


@pytest.mark.parametrize("shape", [(84, 84), (3, 4, 84), (84, 84, 3)])
def test_pictures_too_small_or_not_channels_first_are_refused(shape):
    with pytest.raises(ValueError, match=r"\[channels, height, width\] of at least 5x5, got"):
        encoder_for(spec(shape, "uint8"))


def test_floats_are_read_from_their_bytes_without_a_view_too():
    rng = np.random.default_rng(0)
    values = np.concatenate([
        rng.normal(size=1000), rng.normal(size=1000) * 10.0 ** rng.uniform(-44, 38, 1000),
        [0.0, -0.0, 1.0, -1.0, np.finfo(np.float32).max, np.finfo(np.float32).tiny, 1e-45, -1e-45],
    ]).astype(np.float32)  # fmt: skip
    rows = torch.from_numpy(values.reshape(-1, 8).view(np.uint8))
    assert torch.equal(floats_by_arithmetic(rows), torch.from_numpy(values.reshape(-1, 8)))
    assert torch.equal(torch.vmap(floats_by_arithmetic)(rows), floats_by_arithmetic(rows))
