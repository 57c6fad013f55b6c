"""From observations to an embedding, and back from a latent state: pictures by convolutions, vectors without."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu

from rl_training.models.normed import (
    ChannelNorm,
    block_linear,
    conv,
    dense,
    doubling_conv,
    halving_conv,
    linear,
    normed_mlp,
)
from rl_training.models.rssm import Latent

WIDTHS = (2, 3, 4, 4)  # channels of the stages, in multiples of the depth
STRIDED_WIDTHS = (1, 2, 4, 8)
LEAST = 4  # pixels along the shorter side of the last map


class Grid:
    """How a picture is halved stage by stage: padded to a size that allows it, down to a map of a few pixels."""

    def __init__(self, obs_shape: tuple[int, ...], depth: int, widths: tuple[int, ...] = WIDTHS) -> None:
        self.channels, self.height, self.width = obs_shape
        stages = int(math.log2(max(min(self.height, self.width), 2 * LEAST) / LEAST))
        self.widths = [depth * width for width in widths[:stages]]
        step = 2 ** len(self.widths)
        self.padded = tuple(math.ceil(side / step) * step for side in (self.height, self.width))
        self.map = (self.widths[-1], *(side // step for side in self.padded))


class Doubled(nn.Module):
    """Every pixel as four, channels last; `nn.Upsample` compiled adds its gradients one by one."""

    def forward(self, pictures: Tensor) -> Tensor:
        rows, channels, height, width = pictures.shape
        x = pictures.movedim(1, -1)[:, :, None, :, None]
        return x.expand(-1, -1, 2, -1, 2, -1).reshape(rows, 2 * height, 2 * width, channels).movedim(-1, 1)


class PictureEncoder(nn.Module):
    """Pictures in [0, 1]: a convolution, a halving by the brightest, a norm, stage by stage.

    Where `strided`, the convolution halves, and channels double by the stage, as in the release of 2023.
    """

    def __init__(self, obs_shape: tuple[int, ...], depth: int, *, strided: bool = False) -> None:
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth, STRIDED_WIDTHS if strided else WIDTHS)
        stages: list[nn.Module] = []
        for into, out in zip([grid.channels, *grid.widths], grid.widths, strict=False):
            halved = [halving_conv(into, out)] if strided else [conv(into, out), nn.MaxPool2d(2)]
            stages += [*halved, ChannelNorm(out), nn.SiLU()]
        self.net, self.features = nn.Sequential(*stages), math.prod(grid.map)

    def forward(self, pictures: Tensor) -> Tensor:
        height, width = self.grid.padded
        x = pad(pictures - 0.5, (0, width - self.grid.width, 0, height - self.grid.height))
        return self.net(x.contiguous(memory_format=torch.channels_last)).flatten(1)


class PictureDecoder(nn.Module):
    """The same way back: memory (by blocks) and latents are added in the small map, then doubled stage by stage."""

    def __init__(
        self, obs_shape: tuple[int, ...], depth: int, *, deter: int, stoch: int, units: int, blocks: int
    ) -> None:
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth)
        self.blocks, cells = blocks, math.prod(grid.map)
        self.from_deter = block_linear(blocks, deter // blocks, cells // blocks)
        self.from_stoch = normed_mlp((stoch, 2 * units, cells))
        self.norm = ChannelNorm(grid.map[0])
        stages: list[nn.Module] = []
        for into, out in zip(grid.widths[:0:-1], grid.widths[-2::-1], strict=True):
            stages += [Doubled(), conv(into, out), ChannelNorm(out), nn.SiLU()]
        self.net = nn.Sequential(*stages, Doubled(), conv(grid.widths[0], grid.channels))

    def forward(self, latent: Latent) -> Tensor:
        deter = latent.deter.unflatten(-1, (self.blocks, -1)).transpose(0, 1)
        cells = self.from_deter(deter).transpose(0, 1).flatten(1) + self.from_stoch(latent.stoch.flatten(1))
        x = silu(self.norm(cells.unflatten(1, self.grid.map)))
        pictures = self.net(x.contiguous(memory_format=torch.channels_last)).float().sigmoid()
        return pictures[..., : self.grid.height, : self.grid.width]


class StridedDecoder(nn.Module):
    """The way back of a strided encoder; nothing holds its pixels in [0, 1] but what it has learned."""

    def __init__(self, obs_shape: tuple[int, ...], depth: int, *, features: int) -> None:
        super().__init__()
        self.grid = grid = Grid(obs_shape, depth, STRIDED_WIDTHS)
        self.small = linear(features, math.prod(grid.map))
        stages: list[nn.Module] = []
        for into, out in zip(grid.widths[:0:-1], grid.widths[-2::-1], strict=True):
            stages += [doubling_conv(into, out), ChannelNorm(out), nn.SiLU()]
        self.net = nn.Sequential(*stages, doubling_conv(grid.widths[0], grid.channels))

    def forward(self, latent: Latent) -> Tensor:
        x = self.small(latent.features).unflatten(1, self.grid.map)
        pictures = self.net(x.contiguous(memory_format=torch.channels_last)).float() + 0.5
        return pictures[..., : self.grid.height, : self.grid.width]


class VectorEncoder(nn.Module):
    def __init__(self, entries: int, units: int) -> None:
        super().__init__()
        self.net, self.features = nn.Sequential(dense(entries, units), dense(units, units), dense(units, units)), units

    def forward(self, rows: Tensor) -> Tensor:
        return self.net(rows.flatten(1))


class VectorDecoder(nn.Module):
    def __init__(self, entries: int, units: int, *, features: int) -> None:
        super().__init__()
        self.net = normed_mlp((features, units, units, units, entries))

    def forward(self, latent: Latent) -> Tensor:
        return self.net(latent.features).float()


class MixedEncoder(nn.Module):
    """Rows of a picture's pixels and after them the entries of a vector, each by its own network."""

    def __init__(self, picture: PictureEncoder, vector: VectorEncoder, shape: tuple[int, ...], entries: int) -> None:
        super().__init__()
        self.picture, self.vector = picture, vector
        self.shape, self.split = shape, (math.prod(shape), entries)
        self.features = picture.features + vector.features

    def forward(self, rows: Tensor) -> Tensor:
        pixels, numbers = rows.split(self.split, -1)
        return torch.cat([self.picture(pixels.unflatten(-1, self.shape)), self.vector(numbers)], -1)


class MixedDecoder(nn.Module):
    """Such rows from a latent state."""

    def __init__(self, picture: PictureDecoder | StridedDecoder, vector: VectorDecoder) -> None:
        super().__init__()
        self.picture, self.vector = picture, vector

    def forward(self, latent: Latent) -> Tensor:
        return torch.cat([self.picture(latent).flatten(1), self.vector(latent)], -1)
