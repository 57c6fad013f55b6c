"""Networks of Dreamer (Hafner et al., 2023, arXiv:2301.04104): world model, actor and critic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot

from rl_training.models import autoencoders as ae
from rl_training.models.encoders import check_image, floats_in
from rl_training.models.heads import Categorical, Gaussian
from rl_training.models.layers import ACTIVATIONS, Layers
from rl_training.models.normed import LayerFactory, Release
from rl_training.models.rssm import RSSM, Latent, LatentSequence, PosteriorStep, unimix_log_probs
from rl_training.models.two_hot import TwoHotHead, symlog
from rl_training.types import EnvSpec

BLOCKS = 8  # of the recurrent state
ImaginedStep = Callable[[Latent, Tensor], tuple[Latent, Tensor]]


class Size(NamedTuple):
    deter: int  # width of the recurrent state
    hidden: int  # width of the layers inside the RSSM
    latents: int
    classes: int  # per latent
    depth: int  # base number of convolution channels
    units: int  # width of all other layers
    layers: tuple[int, int] = (1, 3)  # of the reward and continue heads, and of actor and critic
    strided: bool = False  # downsample by strided convolutions instead of max pooling
    release: Release = "2024"  # norms, recurrent network and initial weights


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
    # Widths, layers and convolutions of the 2023 release; its norms and GRU are the option `architecture`.
    "xs": Size(256, 256, 32, 32, 24, 256, (1, 1), strided=True),
    "s": Size(512, 512, 32, 32, 32, 512, (2, 2), strided=True),
    "m": Size(1024, 640, 32, 32, 48, 640, (3, 3), strided=True),
    "l": Size(2048, 768, 32, 32, 64, 768, (4, 4), strided=True),
    "xl": Size(4096, 1024, 32, 32, 96, 1024, (5, 5), strided=True),
}


class UnimixPolicy(nn.Module):
    """Categorical mixed with a uniform distribution (unimix)."""

    def __init__(self, net: nn.Module, unimix: float) -> None:
        super().__init__()
        self.net, self.unimix = net, unimix

    def forward(self, features: Tensor) -> Categorical:
        return Categorical(unimix_log_probs(self.net(features), self.unimix))


class BoundedNormalPolicy(nn.Module):
    """Gaussian with a mean in (-1, 1) and a std in (0.1, 1); samples outside the bounds are clipped."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, features: Tensor) -> Gaussian:
        mean, std = self.net(features).float().chunk(2, -1)
        return Gaussian(mean.tanh(), (0.9 * (std + 2).sigmoid() + 0.1).log())


class DreamerModel(nn.Module):
    def __init__(
        self, spec: EnvSpec, size: Size, hidden_sizes: Sequence[int] = (), *, unimix: float = 0.01,
        actor_scale: float = 0.01, symlog_bins: bool = False, activation: type[nn.Module] = nn.SiLU,
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape, self.action_dim, self.size = spec.obs_shape, spec.action_dim, size
        self.discrete = spec.action_kind == "discrete"
        self.image_shape, entries = split_observation(spec)
        self.mixed = bool(spec.obs_parts)
        make = LayerFactory(size.release)
        self.encoder: Any
        self.encoder, self.decoder = encoder_and_decoder(self.image_shape, entries, size)
        self.rssm = RSSM(
            self.encoder.features, spec.action_dim, deter=size.deter, hidden=size.hidden, latents=size.latents,
            classes=size.classes, blocks=BLOCKS, make=make,
        )  # fmt: skip
        features = size.deter + size.latents * size.classes
        head_sizes, actor_sizes = ((size.units,) * layers for layers in size.layers)
        self.reward = TwoHotHead(features, head_sizes, squashed=symlog_bins, make=make)
        self.continuation = make.mlp((features, *head_sizes, 1))
        actor_sizes = tuple(hidden_sizes) or actor_sizes
        self.critic = TwoHotHead(features, actor_sizes, squashed=symlog_bins, activation=activation, make=make)
        outputs = spec.action_dim if self.discrete else 2 * spec.action_dim
        net = make.mlp((features, *actor_sizes, outputs), scale=actor_scale, activation=activation)
        self.actor: nn.Module = UnimixPolicy(net, unimix) if self.discrete else BoundedNormalPolicy(net)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> DreamerModel:
        size = SIZES[config.size]._replace(release=config.architecture)
        return cls(
            spec, size, config.hidden_sizes, unimix=config.actor_unimix, actor_scale=config.actor_scale,
            symlog_bins=config.bins == "symlog", activation=_activation(spec, config),
        )  # fmt: skip

    def scaled(self, obs: Tensor) -> Tensor:
        """Scales images to [0, 1] and vectors by symlog; a Dict becomes one row of pixels and vector entries."""
        if not self.mixed:
            return obs.float() / 255 if self.image_shape else symlog(obs.float())
        pixels, vectors = obs.tensor_split([math.prod(self.image_shape)], -1)
        return torch.cat([pixels.float() / 255, symlog(floats_in(vectors))], -1)

    def images(self, scaled: Tensor) -> Tensor:
        """Returns the images in an output [batch, time, ...] of `scaled` or `decode`."""
        return scaled[..., : math.prod(self.image_shape)].unflatten(-1, self.image_shape) if self.mixed else scaled

    def encoded(self, actions: Tensor) -> Tensor:
        """Encodes Discrete actions as one-hot vectors and clips Box actions to [-1, 1]."""
        if self.discrete:
            return one_hot(actions, self.action_dim).float()
        return actions / actions.detach().abs().clamp(min=1)  # unlike clamp, with a gradient outside the bounds

    def embed(self, obs: Tensor) -> Tensor:
        """Encodes observations [batch, time, ...]."""
        return self.encoder(self.scaled(obs).flatten(0, 1)).unflatten(0, obs.shape[:2])

    def observe(
        self, embedded: Tensor, previous_actions: Tensor, is_first: Tensor, start: Latent, noise: Tensor | None,
        step: PosteriorStep | None = None,
    ) -> LatentSequence:  # fmt: skip
        """Posterior and prior states of windows [batch, time, ...]."""
        return self.rssm.observe(embedded, self.encoded(previous_actions), is_first, start, noise, step)

    def decode(self, latent: Latent) -> Tensor:
        """Decodes states [batch, time, ...] to observations on the scale of `scaled`."""
        rows = Latent(latent.deter.flatten(0, 1), latent.stoch.flatten(0, 1))
        return self.decoder(rows).unflatten(0, latent.deter.shape[:2])

    @torch.no_grad()
    def predict(self, start: Latent, actions: Tensor) -> Latent:
        """Samples states [batch, time, ...] from the prior, given a start state and actions [batch, time, ...]."""
        latents = []
        for action in self.encoded(actions).unbind(1):
            start = self.rssm.predict(start, action, self.rssm.noise(len(action), like=action))
            latents.append(start)
        return Latent(*(torch.stack(each, 1) for each in zip(*latents, strict=True)))

    def imagine(self, start: Latent, horizon: int, step: ImaginedStep | None = None) -> tuple[Latent, Tensor]:
        """Imagined states [horizon + 1, rows, ...] from `start` on, and actions; `step` may be compiled."""
        step, latents, actions = step or self.imagined_step, [start], []
        for noise in self.rssm.noise(horizon, len(start.deter), like=start.deter):
            latent, action = step(latents[-1], noise)
            latents.append(latent)
            actions.append(action)
        return Latent(*(torch.stack(each) for each in zip(*latents, strict=True))), torch.stack(actions)

    def imagined_step(self, latent: Latent, noise: Tensor) -> tuple[Latent, Tensor]:
        """Samples an action from the actor and the next state from the prior."""
        # Gradients of later states reach the actor through the actions, not through the states it sees.
        action = self.actor(latent.features.detach()).sample()
        return self.rssm.predict(latent, self.encoded(action), noise), action

    forward = imagined_step

    def step_with_weights(self, weights: dict[str, Tensor], *inputs: Any) -> tuple[Latent, Tensor]:
        """`imagined_step` with the weights of `detached_world`."""
        return functional_call(self, weights, inputs)

    def detached_world(self) -> dict[str, Tensor]:
        """Weights of the RSSM without gradients; gradients flow through its inputs."""
        return {f"rssm.{name}": weight for name, weight in self.rssm.detached_weights().items()}


def _activation(spec: EnvSpec, config: Any) -> type[nn.Module]:
    """Activation of actor and critic; raises an error for options of `network` that the world model does not have."""
    network = config.network
    if network is None:
        return nn.SiLU
    custom = Layers.from_config(spec, config).custom  # the role model is for a subclass of this model
    if network.kind != "mlp" and (custom is None or custom.role != "model"):
        raise ValueError(
            f"dreamer's encoder and hidden layers belong to its world model and cannot be replaced by network "
            f"{network.kind}; use kind mlp, or a class with the role model"
        )
    if network.layer_norm is not None:
        raise ValueError("dreamer has a norm in every layer; leave out network.layer_norm")
    return nn.SiLU if network.activation is None else ACTIVATIONS[network.activation]


def split_observation(spec: EnvSpec) -> tuple[tuple[int, ...], int]:
    """Shape of the observation's image (empty if there is none) and number of vector entries.

    Several images are one: their channels are stacked, so they must have one size.
    """
    images = [part.shape for part in spec.obs_parts if part.dtype == "uint8"]
    if not images and spec.obs_dtype == "uint8" and len(spec.obs_shape) == 3:
        images = [spec.obs_shape]
    if not images:
        return (), math.prod(spec.obs_shape)
    check_image(images[0])
    if any(shape[1:] != images[0][1:] for shape in images):
        raise TypeError(
            f"dreamer needs images of one size, got {', '.join(map(str, images))}; resize them with "
            "gymnasium.wrappers.TransformObservation"
        )
    channels = sum(shape[0] for shape in images)
    return (channels, *images[0][1:]), sum(part.size for part in spec.obs_parts[len(images) :])


def encoder_and_decoder(image_shape: tuple[int, ...], entries: int, size: Size) -> tuple[Any, nn.Module]:
    """Encoder and decoder of an image, of a vector with this number of entries, or of both."""
    stoch, units, depth = size.latents * size.classes, size.units, size.depth
    features, make = size.deter + stoch, LayerFactory(size.release)
    parts: list[tuple[Any, Any]] = []
    if image_shape:
        images = ae.ImageEncoder(image_shape, depth, strided=size.strided, make=make)
        decoder: nn.Module
        if size.strided:
            decoder = ae.StridedDecoder(image_shape, depth, features=features, make=make)
        else:
            widths = {"deter": size.deter, "stoch": stoch, "units": units}
            decoder = ae.ImageDecoder(image_shape, depth, **widths, blocks=BLOCKS, make=make)
        parts.append((images, decoder))
    if entries:
        vectors = ae.VectorEncoder(entries, units, make)
        parts.append((vectors, ae.VectorDecoder(entries, units, features=features, make=make)))
    if len(parts) == 1:
        return parts[0]
    encoders, decoders = zip(*parts, strict=True)
    return ae.MixedEncoder(encoders[0], encoders[1], image_shape, entries), ae.MixedDecoder(*decoders)
