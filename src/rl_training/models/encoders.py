"""Observation encoders (vectors are flattened, images go through a small convolutional network) and normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rl_training.types import EnvSpec, ObsPart

MIN_SIDE, MIN_SIDE_NATURE = 5, 36  # pixels along the shorter side of an image
PADDING = 1e-3  # of a std, for constant columns, as in TD3+BC and CORL
ROUNDING = 1e-5  # a std of this fraction of the largest number is no more than the rounding of float32
MAX_MERGES = 2**22  # every later merge weighs as much as this one: float32 would round off smaller changes


class PixelEncoder(nn.Module):
    """Convolutions on images scaled to [0, 1], and a dense layer with this number of features (0: none)."""

    def __init__(self, obs_shape: tuple[int, ...], conv: nn.Sequential, dense: int) -> None:
        super().__init__()
        self.conv = conv
        with torch.no_grad():
            flat = conv(torch.zeros(1, *obs_shape)).shape[1]
        self.features = dense or flat
        self.out = nn.Sequential(nn.Linear(flat, dense), nn.ReLU()) if dense else nn.Sequential()

    def forward(self, obs: Tensor) -> Tensor:
        return self.out(self.conv(with_fast_strides(obs).float() / 255))


def with_fast_strides(images: Tensor) -> Tensor:
    """Stores [rows, channels, height, width] with the channels innermost on a CPU, where this speeds up gradients."""
    if images.device.type != "cpu":
        return images
    # vmap does not take the memory format of channels. A copy is made even of one channel, for the same layout of all.
    return images.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)


class PixelLayerNorm(nn.Module):
    """Layer norm over the channels of each pixel of [..., channels, height, width]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        normalized: Tensor = self.norm(x.movedim(-3, -1))
        return normalized.movedim(-1, -3)


def convolution(channels: int, outputs: int, size: int, stride: int, layer_norm: bool) -> list[nn.Module]:
    return [nn.Conv2d(channels, outputs, size, stride), *([PixelLayerNorm(outputs)] if layer_norm else []), nn.ReLU()]


class NatureCNN(PixelEncoder):
    """Convolutional network of Mnih et al. (2015)."""

    def __init__(self, obs_shape: tuple[int, ...], *, dense: bool = True, layer_norm: bool = False) -> None:
        conv = nn.Sequential(
            *convolution(obs_shape[0], 32, 8, 4, layer_norm),
            *convolution(32, 64, 4, 2, layer_norm),
            *convolution(64, 64, 3, 1, layer_norm), nn.Flatten(),
        )  # fmt: skip
        super().__init__(obs_shape, conv, 512 if dense else 0)


class GridCNN(PixelEncoder):
    """One convolution, for small grids such as MinAtar's (Young & Tian, 2019, arXiv:1903.03176)."""

    def __init__(self, obs_shape: tuple[int, ...], *, dense: bool = True, layer_norm: bool = False) -> None:
        conv = nn.Sequential(*convolution(obs_shape[0], 16, 3, 1, layer_norm), nn.Flatten())
        super().__init__(obs_shape, conv, 128 if dense else 0)


def check_image(shape: tuple[int, ...]) -> None:
    """Raises an error unless the shape is [channels, height, width] and large enough."""
    if len(shape) != 3 or min(shape[1:]) < MIN_SIDE:
        raise ValueError(f"images must be [channels, height, width] of at least {MIN_SIDE}x{MIN_SIDE}, got {shape}")


def encoder_for(spec: EnvSpec, *, dense: bool = True, layer_norm: bool = False) -> tuple[nn.Module, int]:
    """Returns an encoder and its number of features; an image encoder can have a dense layer and layer norms."""
    if spec.obs_parts:
        mixed = PartsEncoder(spec.obs_parts, dense=dense, layer_norm=layer_norm)
        return mixed, mixed.features
    if spec.obs_dtype != "uint8" or len(spec.obs_shape) == 1:
        return Flat(), math.prod(spec.obs_shape)
    encoder = image_encoder(spec.obs_shape, dense=dense, layer_norm=layer_norm)
    return encoder, encoder.features


def image_encoder(shape: tuple[int, ...], *, dense: bool, layer_norm: bool) -> PixelEncoder:
    check_image(shape)
    kind = NatureCNN if min(shape[1:]) >= MIN_SIDE_NATURE else GridCNN
    return kind(shape, dense=dense, layer_norm=layer_norm)


class PartsEncoder(nn.Module):
    """Encodes packed rows of images and vectors: the features of one network for each image, then the vectors."""

    def __init__(self, parts: Sequence[ObsPart], *, dense: bool, layer_norm: bool) -> None:
        super().__init__()
        images = [part for part in parts if part.dtype == "uint8"]
        entries = sum(part.size for part in parts[len(images) :])
        self.shapes, self.sizes = [part.shape for part in images], [*(part.bytes for part in images), 4 * entries]
        norm = {"dense": dense, "layer_norm": layer_norm}
        self.images = nn.ModuleList(image_encoder(part.shape, **norm) for part in images)
        self.features = sum(encoder.features for encoder in self.images if isinstance(encoder, PixelEncoder)) + entries

    def forward(self, rows: Tensor) -> Tensor:
        *images, vectors = rows.split(self.sizes, -1)
        encoders = zip(self.images, images, self.shapes, strict=True)
        features = [encoder(pixels.unflatten(-1, shape)) for encoder, pixels, shape in encoders]
        return torch.cat([*features, floats_in(vectors)], -1) if self.sizes[-1] else torch.cat(features, -1)


def floats_in(packed: Tensor) -> Tensor:
    """Returns the float32 numbers in the last axis of packed bytes.

    An exported policy has floats instead of bytes: each number and three zeros, since ONNX cannot read bytes as floats.
    """
    if packed.is_floating_point():
        return packed[..., ::4]
    if not VMAP_TAKES_VIEWS:
        return floats_by_arithmetic(packed)
    aligned = packed.clone(memory_format=torch.contiguous_format)  # a float32 view needs 4-byte alignment
    return aligned.view(torch.float32)


def floats_by_arithmetic(packed: Tensor) -> Tensor:
    """Returns the same finite numbers from sign, exponent and mantissa of IEEE 754, without a view of the bytes."""
    bits = (packed.unflatten(-1, (-1, 4)).long() << torch.arange(0, 32, 8, device=packed.device)).sum(-1)
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    mantissa = torch.where(exponent > 0, fraction + 0x800000, fraction) * (1 - 2 * (bits >> 31))
    return torch.ldexp(mantissa.float(), exponent.clamp_min(1).float() - 150)


def _vmap_takes_views() -> bool:
    try:
        torch.vmap(lambda row: row.view(torch.float32))(torch.zeros(1, 4, dtype=torch.uint8))
    except RuntimeError:  # torch before 2.12
        return False
    return True


VMAP_TAKES_VIEWS = _vmap_takes_views()  # whether the updates of a population can read bytes as floats


def unpack(rows: Tensor, parts: Sequence[ObsPart]) -> dict[str, Tensor]:
    """Returns the parts of packed rows by name: images as uint8, vectors as float32."""
    pieces = zip(parts, rows.split([part.bytes for part in parts], -1), strict=True)
    values = {part: piece if part.dtype == "uint8" else floats_in(piece) for part, piece in pieces}
    return {part.name: value.reshape(*value.shape[:-1], *part.shape) for part, value in values.items()}


class Flat(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs.flatten(1).float()


@dataclass(frozen=True)
class Statistics:
    """Running mean and std of rows, changed in place; `count` has the leading axes of a population, or none."""

    mean: Tensor
    std: Tensor
    count: Tensor
    unscaled: slice | None = None  # columns that keep their values

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.mean, self.std, self.count

    @torch.no_grad()
    def merge(self, rows: Tensor) -> None:
        """Adds rows [*population, rows, ...] (Chan, Golub & LeVeque, 1983)."""
        axis, new = self.count.dim(), rows.shape[self.count.dim()]
        before = self.count.view((*self.count.shape, *[1] * (self.mean.dim() - axis)))
        before = before.clamp(max=new * (MAX_MERGES - 1))
        total, shift = before + new, rows.mean(axis) - self.mean
        squares = self.std.square() * before + rows.var(axis, unbiased=False) * new
        squares = squares + shift.square() * before * new / total
        self.mean.add_(shift * new / total)
        self.std.copy_((squares / total).clamp_min(1e-8).sqrt())
        self.count.add_(new)
        self.keep_unscaled()

    def keep_unscaled(self) -> None:
        if self.unscaled is not None:
            self.mean[..., self.unscaled], self.std[..., self.unscaled] = 0, 1


def padded_std(rows: Tensor) -> Tensor:
    """Standard deviation of each column, plus PADDING; small ones are not padded, unless they are only rounding."""
    std, (low, high) = rows.std(0, unbiased=False), rows.aminmax(dim=0)
    is_rounding = std <= ROUNDING * torch.maximum(high, -low)
    return torch.where((std >= PADDING) | is_rounding, std + PADDING, std)


class Normalizer(nn.Module):
    """Standardises observations. Call `fit` once on a dataset, or `merge` after every rollout."""

    mean: Tensor
    std: Tensor
    count: Tensor

    def __init__(self, obs_shape: tuple[int, ...], *, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        self.unscaled: slice | None = None  # columns that keep their values
        self.register_buffer("mean", torch.zeros(obs_shape))
        self.register_buffer("std", torch.ones(obs_shape))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, obs: Tensor) -> Tensor:
        scaled = (obs - self.mean) / self.std
        return scaled if self.clip is None else scaled.clamp(-self.clip, self.clip)

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        self.mean.copy_(rows.mean(0))
        self.std.copy_(padded_std(rows))
        self.count.fill_(len(rows))
        self.statistics().keep_unscaled()

    @torch.no_grad()
    def merge(self, rows: Tensor) -> None:
        """Updates the running mean and std."""
        self.statistics().merge(rows)

    def statistics(self) -> Statistics:
        return Statistics(self.mean, self.std, self.count, self.unscaled)
