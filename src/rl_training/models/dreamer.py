"""Dreamer's networks: a world model that is fitted to what was seen, and an actor and a critic that live in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from rl_training.models.autoencoders import (
    MixedDecoder,
    MixedEncoder,
    PictureDecoder,
    PictureEncoder,
    StridedDecoder,
    VectorDecoder,
    VectorEncoder,
)
from rl_training.models.encoders import check_picture
from rl_training.models.heads import Categorical, Gaussian
from rl_training.models.normed import normed_mlp
from rl_training.models.rssm import RSSM, Beliefs, Latent, SeenStep, mixed_log_probs
from rl_training.models.two_hot import TwoHotHead, symlog
from rl_training.types import EnvSpec

BLOCKS = 8  # of the memory
DreamtStep = Callable[[Latent, Tensor], tuple[Latent, Tensor]]


class Size(NamedTuple):
    deter: int  # entries of the memory
    hidden: int  # width of the layers inside the recurrent model
    latents: int
    classes: int  # of each latent
    depth: int  # the convolutions' widths are multiples of it
    units: int  # width of all other layers
    layers: tuple[int, int] = (1, 3)  # of reward and continuation, and of actor and critic
    strided: bool = False  # whether convolutions halve a picture themselves


SIZES = {
    "tiny": Size(256, 64, 8, 8, 8, 64),
    "nano": Size(256, 128, 16, 16, 8, 128),
    "size1m": Size(512, 64, 32, 4, 4, 64),
    "mini": Size(1024, 128, 32, 8, 8, 128),
    "size12m": Size(2048, 256, 32, 16, 16, 256),
    "size25m": Size(3072, 384, 32, 24, 24, 384),
    "size50m": Size(4096, 512, 32, 32, 32, 512),
    "size100m": Size(6144, 768, 32, 48, 48, 768),
    "size200m": Size(8192, 1024, 32, 64, 64, 1024),
    # Widths, layers and convolutions of the release of 2023; the memory is as above.
    "xs": Size(256, 256, 32, 32, 24, 256, (1, 1), strided=True),
    "s": Size(512, 512, 32, 32, 32, 512, (2, 2), strided=True),
    "m": Size(1024, 640, 32, 32, 48, 640, (3, 3), strided=True),
    "l": Size(2048, 768, 32, 32, 64, 768, (4, 4), strided=True),
    "xl": Size(4096, 1024, 32, 32, 96, 1024, (5, 5), strided=True),
}


class MixedCategoricalPolicy(nn.Module):
    """Of every distribution an even one has a share, so that no action is ever given up."""

    def __init__(self, net: nn.Module, unimix: float) -> None:
        super().__init__()
        self.net, self.unimix = net, unimix

    def forward(self, features: Tensor) -> Categorical:
        return Categorical(mixed_log_probs(self.net(features), self.unimix))


class BoundedNormalPolicy(nn.Module):
    """A normal with a mean in (-1, 1) and a deviation in (0.1, 1); samples beyond the bounds count as on them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, features: Tensor) -> Gaussian:
        mean, spread = self.net(features).float().chunk(2, -1)
        return Gaussian(mean.tanh(), (0.9 * (spread + 2).sigmoid() + 0.1).log())


class DreamerModel(nn.Module):
    """Takes observations and actions as batches have them; all parts but the first and the last know latents only."""

    def __init__(
        self, spec: EnvSpec, size: Size, hidden_sizes: Sequence[int] = (), *, unimix: float = 0.01,
        actor_scale: float = 0.01, symlog_bins: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape, self.action_dim, self.size = spec.obs_shape, spec.action_dim, size
        self.discrete = spec.action_kind == "discrete"
        picture, entries = shown(spec)
        self.picture, self.mixed = picture, bool(spec.obs_parts)
        stoch = size.latents * size.classes
        features = size.deter + stoch
        units, depth = size.units, size.depth
        parts: list[tuple[Any, Any]] = []
        if picture:
            pictures = PictureEncoder(picture, depth, strided=size.strided)
            pixels: nn.Module
            if size.strided:
                pixels = StridedDecoder(picture, depth, features=features)
            else:
                pixels = PictureDecoder(picture, depth, deter=size.deter, stoch=stoch, units=units, blocks=BLOCKS)
            parts.append((pictures, pixels))
        if entries:
            parts.append((VectorEncoder(entries, units), VectorDecoder(entries, units, features=features)))
        encoders, decoders = zip(*parts, strict=True)
        self.encoder: Any = MixedEncoder(encoders[0], encoders[1], picture, entries) if self.mixed else encoders[0]
        self.decoder = MixedDecoder(*decoders) if self.mixed else decoders[0]
        self.rssm = RSSM(
            self.encoder.features, spec.action_dim, deter=size.deter, hidden=size.hidden, latents=size.latents,
            classes=size.classes, blocks=BLOCKS,
        )  # fmt: skip
        few, more = ((units,) * layers for layers in size.layers)
        self.reward = TwoHotHead(features, few, squashed=symlog_bins)
        self.continuation = normed_mlp((features, *few, 1))
        hidden = tuple(hidden_sizes) or more
        self.critic = TwoHotHead(features, hidden, squashed=symlog_bins)
        outputs = spec.action_dim if self.discrete else 2 * spec.action_dim
        net = normed_mlp((features, *hidden, outputs), scale=actor_scale)
        self.actor: nn.Module = MixedCategoricalPolicy(net, unimix) if self.discrete else BoundedNormalPolicy(net)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> DreamerModel:
        return cls(
            spec, SIZES[config.size], config.hidden_sizes, unimix=config.actor_unimix, actor_scale=config.actor_scale,
            symlog_bins=config.bins == "symlog",
        )  # fmt: skip

    def scaled(self, obs: Tensor) -> Tensor:
        """Observations as they go in and are to come out: bytes of pictures in [0, 1], else symlog; of both, a row."""
        if not self.mixed:
            return obs.float() / 255 if self.picture else symlog(obs.float())
        pixels, numbers = obs.tensor_split([math.prod(self.picture)], -1)
        aligned = numbers.clone(memory_format=torch.contiguous_format)  # a view of a float begins at every fourth byte
        return torch.cat([pixels.float() / 255, symlog(aligned.view(torch.float32))], -1)

    def pictures(self, scaled: Tensor) -> Tensor:
        """Of what `scaled` gives [batch, time, ...], or `decode`."""
        return scaled[..., : math.prod(self.picture)].unflatten(-1, self.picture) if self.mixed else scaled

    def encoded(self, actions: Tensor) -> Tensor:
        """Actions as the memory takes them: Discrete ones as one-hot vectors, others within their bounds."""
        return one_hot(actions, self.action_dim).float() if self.discrete else actions.clamp(-1, 1)

    def embed(self, obs: Tensor) -> Tensor:
        """Observations [batch, time, ...] by themselves."""
        return self.encoder(self.scaled(obs).flatten(0, 1)).unflatten(0, obs.shape[:2])

    def observe(
        self, embedded: Tensor, previous_actions: Tensor, is_first: Tensor, start: Latent, noise: Tensor | None,
        step: SeenStep | None = None,
    ) -> Beliefs:  # fmt: skip
        """What is believed after each observation of windows [batch, time, ...]."""
        return self.rssm.observe(embedded, self.encoded(previous_actions), is_first, start, noise, step)

    def decode(self, latent: Latent) -> Tensor:
        """Observations, as `scaled` gives them, of states [batch, time, ...]."""
        rows = Latent(latent.deter.flatten(0, 1), latent.stoch.flatten(0, 1))
        return self.decoder(rows).unflatten(0, latent.deter.shape[:2])

    @torch.no_grad()
    def predict(self, start: Latent, actions: Tensor) -> Latent:
        """The states [batch, time, ...] that these actions [batch, time, ...] lead to from `start`, unseen."""
        latents = []
        for action in self.encoded(actions).unbind(1):
            start = self.rssm.predict(start, action, self.rssm.noise(len(action), like=action))
            latents.append(start)
        return Latent(*(torch.stack(each, 1) for each in zip(*latents, strict=True)))

    @torch.no_grad()
    def imagine(self, start: Latent, horizon: int, step: DreamtStep | None = None) -> tuple[Latent, Tensor]:
        """States [horizon + 1, rows, ...] from `start` on, and the actor's actions [horizon, rows, ...] in between.

        `step` may be `dreamt_step` compiled.
        """
        step, latents, actions = step or self.dreamt_step, [start], []
        for noise in self.rssm.noise(horizon, len(start.deter), like=start.deter):
            latent, action = step(latents[-1], noise)
            latents.append(latent)
            actions.append(action)
        return Latent(*(torch.stack(each) for each in zip(*latents, strict=True))), torch.stack(actions)

    def dreamt_step(self, latent: Latent, noise: Tensor) -> tuple[Latent, Tensor]:
        """What the actor does in a state, and the state that it expects of it."""
        action = self.actor(latent.features).sample()
        return self.rssm.predict(latent, self.encoded(action), noise), action


def shown(spec: EnvSpec) -> tuple[tuple[int, ...], int]:
    """The shape of the picture in an observation (none: empty), and how many entries its vectors have."""
    picture: tuple[int, ...] = ()
    if spec.obs_parts:
        picture = spec.obs_parts[0].shape
    elif spec.obs_dtype == "uint8" and len(spec.obs_shape) == 3:
        picture = spec.obs_shape
    if picture:
        check_picture(picture)
        return picture, sum(part.size for part in spec.obs_parts[1:])
    return (), math.prod(spec.obs_shape)
