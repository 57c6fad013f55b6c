"""Encoders and decoders of Dreamer's world model: convolutions for images, dense layers for vectors."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu

from rl_training.models.normed import LAYERS_2024, LayerFactory, block_linear
from rl_training.models.rssm import Latent

WIDTHS = (2, 3, 4, 4)  # channels of the stages, in multiples of the depth
STRIDED_WIDTHS = (1, 2, 4, 8)
MIN_SIDE = 4  # pixels along the shorter side of the smallest feature map


class Grid:
    """Sizes of the feature maps: the image is padded so that every stage halves it exactly."""

    def __init__(self, obs_shape: tuple[int, ...], depth: int, widths: tuple[int, ...] = WIDTHS) -> None:
        self.channels, self.height, self.width = obs_shape
        stages = int(math.log2(max(min(self.height, self.width), 2 * MIN_SIDE) / MIN_SIDE))
        self.widths = [depth * width for width in widths[:stages]]
        step = 2 ** len(self.widths)
        self.padded = tuple(math.ceil(side / step) * step for side in (self.height, self.width))
        self.map = (self.widths[-1], *(side // step for side in self.padded))


class Upsample2x(nn.Module):
    """Nearest-neighbour upsampling by 2, channels last; a compiled `nn.Upsample` has a slow backward pass."""

    def forward(self, images: Tensor) -> Tensor:
        rows, channels, height, width = images.shape
        x = images.movedim(1, -1)[:, :, None, :, None]
        return x.expand(-1, -1, 2, -1, 2, -1).reshape(rows, 2 * height, 2 * width, channels).movedim(-1, 1)


class ImageEncoder(nn.Module):
    """Encodes images in [0, 1] by stages of convolution, max pooling (or strides, as in the 2023 release) and norm."""

    def __init__(
        self, obs_shape: tuple[int, ...], depth: int, *, strided: bool = False, make: LayerFactory = LAYERS_2024
    ) -> None:
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth, STRIDED_WIDTHS if strided else WIDTHS)
        stages: list[nn.Module] = []
        for into, out in zip([grid.channels, *grid.widths], grid.widths, strict=False):
            halved = [make.halving_conv(into, out)] if strided else [make.conv(into, out), nn.MaxPool2d(2)]
            stages += [*halved, make.channel_norm(out), nn.SiLU()]
        self.net, self.features = nn.Sequential(*stages), math.prod(grid.map)

    def forward(self, images: Tensor) -> Tensor:
        height, width = self.grid.padded
        x = pad(images - 0.5, (0, width - self.grid.width, 0, height - self.grid.height))
        return self.net(x.contiguous(memory_format=torch.channels_last)).flatten(1)


class ImageDecoder(nn.Module):
    """Decodes a state: projections of the recurrent state (by blocks) and of the latents, then upsampling stages."""

    def __init__(
        self, obs_shape: tuple[int, ...], depth: int, *, deter: int, stoch: int, units: int, blocks: int,
        make: LayerFactory = LAYERS_2024,
    ) -> None:  # fmt: skip
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth)
        self.blocks, cells = blocks, math.prod(grid.map)
        self.from_deter = block_linear(blocks, deter // blocks, cells // blocks)
        self.from_stoch = make.mlp((stoch, 2 * units, cells))
        self.norm = make.channel_norm(grid.map[0])
        stages: list[nn.Module] = []
        for into, out in zip(grid.widths[:0:-1], grid.widths[-2::-1], strict=True):
            stages += [Upsample2x(), make.conv(into, out), make.channel_norm(out), nn.SiLU()]
        self.net = nn.Sequential(*stages, Upsample2x(), make.conv(grid.widths[0], grid.channels))

    def forward(self, latent: Latent) -> Tensor:
        deter = latent.deter.unflatten(-1, (self.blocks, -1)).transpose(0, 1)
        cells = self.from_deter(deter).transpose(0, 1).flatten(1) + self.from_stoch(latent.stoch.flatten(1))
        x = silu(self.norm(cells.unflatten(1, self.grid.map)))
        images = self.net(x.contiguous(memory_format=torch.channels_last)).float().sigmoid()
        return images[..., : self.grid.height, : self.grid.width]


class StridedDecoder(nn.Module):
    """Decoder for a strided encoder; its pixels are not bounded to [0, 1]."""

    def __init__(
        self, obs_shape: tuple[int, ...], depth: int, *, features: int, make: LayerFactory = LAYERS_2024
    ) -> None:
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth, STRIDED_WIDTHS)
        self.small = make.linear(features, math.prod(grid.map))
        stages: list[nn.Module] = []
        for into, out in zip(grid.widths[:0:-1], grid.widths[-2::-1], strict=True):
            stages += [make.doubling_conv(into, out, bias=make.bias), make.channel_norm(out), nn.SiLU()]
        self.net = nn.Sequential(*stages, make.doubling_conv(grid.widths[0], grid.channels))

    def forward(self, latent: Latent) -> Tensor:
        x = self.small(latent.features).unflatten(1, self.grid.map)
        images = self.net(x.contiguous(memory_format=torch.channels_last)).float() + 0.5
        return images[..., : self.grid.height, : self.grid.width]


class VectorEncoder(nn.Module):
    def __init__(self, entries: int, units: int, make: LayerFactory = LAYERS_2024) -> None:
        super().__init__()
        self.features = units
        self.net = nn.Sequential(*(make.dense(into, units) for into in (entries, units, units)))

    def forward(self, rows: Tensor) -> Tensor:
        return self.net(rows.flatten(1))


class VectorDecoder(nn.Module):
    def __init__(self, entries: int, units: int, *, features: int, make: LayerFactory = LAYERS_2024) -> None:
        super().__init__()
        self.net = make.mlp((features, units, units, units, entries))

    def forward(self, latent: Latent) -> Tensor:
        return self.net(latent.features).float()


class MixedEncoder(nn.Module):
    """Encodes rows of an image's pixels followed by vector entries, each with its own network."""

    def __init__(self, picture: ImageEncoder, vector: VectorEncoder, shape: tuple[int, ...], entries: int) -> None:
        super().__init__()
        self.picture, self.vector = picture, vector
        self.shape, self.split = shape, (math.prod(shape), entries)
        self.features = picture.features + vector.features

    def forward(self, rows: Tensor) -> Tensor:
        pixels, entries = rows.split(self.split, -1)
        return torch.cat([self.picture(pixels.unflatten(-1, self.shape)), self.vector(entries)], -1)


class MixedDecoder(nn.Module):
    def __init__(self, picture: ImageDecoder | StridedDecoder, vector: VectorDecoder) -> None:
        super().__init__()
        self.picture, self.vector = picture, vector

    def forward(self, latent: Latent) -> Tensor:
        return torch.cat([self.picture(latent).flatten(1), self.vector(latent)], -1)
