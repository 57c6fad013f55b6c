"""Hidden layers as the option `network` describes them: widths, activation and layer norm, or a class of your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import nn

from rl_training.models.custom import CustomNetwork
from rl_training.models.encoders import encoder_for
from rl_training.models.mlp import EnsembleLinear, Norm, ReLU, mlp, new_layer_norm
from rl_training.models.simba import CRITIC_HIDDEN_SIZES, SimbaTrunk, simba_output
from rl_training.models.simba_v2 import SphereTrunk, sphere_output
from rl_training.types import EnvSpec

Activation = Literal["relu", "tanh", "elu", "gelu", "silu", "leaky_relu", "selu", "mish"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU, "leaky_relu": nn.LeakyReLU,
    "selu": nn.SELU, "mish": nn.Mish,
}  # fmt: skip

HiddenSizes: TypeAlias = "Sequence[int] | Layers"  # widths alone, or all that describes the hidden layers


class Blocks(NamedTuple):
    """Networks of residual blocks, all of one width."""

    trunk: Callable[[int, Sequence[int], type[nn.Module], int | None], nn.Module]  # inputs, widths, activation, copies
    output: Callable[[int, int, int | None, int], nn.Module]  # width, outputs, copies, parts


KINDS: dict[str, Blocks | None] = {
    "mlp": None,
    "simba": Blocks(SimbaTrunk, simba_output),
    "simba_v2": Blocks(SphereTrunk, sphere_output),
}


@dataclass(frozen=True)
class Layers:
    """Hidden layers between the inputs and the output layer of a network."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    kind: str = "mlp"
    activation: type[nn.Module] = ReLU
    layer_norm: bool | None = None  # None: the network's own default
    custom: CustomNetwork | None = None  # replaces the encoder or the hidden layers
    image_norm: bool = False  # layer norm after each convolution
    critic_sizes: tuple[int, ...] | None = None  # `hidden_sizes` of critics, if they differ

    @classmethod
    def of(cls, hidden_sizes: HiddenSizes) -> Layers:
        return hidden_sizes if isinstance(hidden_sizes, Layers) else cls(tuple(hidden_sizes))

    @classmethod
    def from_config(cls, spec: EnvSpec, config: Any) -> Layers:
        """Reads an algorithm's options `hidden_sizes`, `network` and, if it has that, `activation`."""
        network = config.network
        activation = ACTIVATIONS[getattr(config, "activation", "relu")]
        if network is None:
            return cls(config.hidden_sizes, activation=activation)
        if network.activation is not None:
            activation = ACTIVATIONS[network.activation]
        custom = None if network.kind in KINDS else CustomNetwork.load(network.kind, network.given(), spec)
        critic_sizes = None
        if KINDS.get(network.kind):
            critic_sizes = getattr(config, "critic_hidden_sizes", network.critic_hidden_sizes) or CRITIC_HIDDEN_SIZES
        return cls(config.hidden_sizes, network.kind, activation, network.layer_norm, custom, critic_sizes=critic_sizes)

    @property
    def blocks(self) -> Blocks | None:
        """Residual blocks; None: plain layers or a class of your own."""
        return KINDS.get(self.kind)

    def for_critics(self) -> Layers:
        return self if self.critic_sizes is None else replace(self, hidden_sizes=self.critic_sizes)

    def features(self, obs_dim: int) -> tuple[nn.Module, int]:
        """Returns a custom feature network or the identity, and its number of features."""
        found = None if self.custom is None else self.custom.features()
        return (nn.Identity(), obs_dim) if found is None else found

    def encoder(self, spec: EnvSpec, *, dense: bool = True) -> tuple[nn.Module, int]:
        """Encoder of observations and its number of features; see `encoder_for`."""
        found = None if self.custom is None else self.custom.features()
        return encoder_for(spec, dense=dense, layer_norm=self.image_norm) if found is None else found

    def network(
        self, inputs: int, outputs: int, *, copies: int | None = None, layer_norm: Norm = False, parts: int = 1
    ) -> Any:
        """Hidden layers and an output layer; the option `network.layer_norm` overrides `layer_norm`.

        In simba_v2, each of the `parts` of the outputs, such as mean and log std, has its own output layers.
        """
        norm = layer_norm if self.layer_norm is None else self.layer_norm
        found = self._other_hidden_layers(inputs, copies)
        if found is None:
            sizes = (inputs, *self.hidden_sizes, outputs)
            return mlp(sizes, activation=self.activation, copies=copies, layer_norm=norm)
        hidden, width = found
        if self.blocks is not None:
            return nn.Sequential(hidden, self.blocks.output(width, outputs, copies, parts))
        last = nn.Linear(width, outputs) if copies is None else EnsembleLinear(copies, width, outputs)
        return nn.Sequential(hidden, last)

    def from_obs(self, obs_dim: int, outputs: int, *, layer_norm: bool = False, parts: int = 1) -> Any:
        """`features` followed by `network`."""
        features, width = self.features(obs_dim)
        net = self.network(width, outputs, layer_norm=layer_norm, parts=parts)
        return net if isinstance(features, nn.Identity) else nn.Sequential(features, net)

    def trunk(self, inputs: int) -> tuple[list[nn.Module], int, tuple[int, ...]]:
        """Returns hidden layers but the last, their output width, and the width of the last, which a head may split."""
        found = self._other_hidden_layers(inputs, None)
        if found is not None:
            return [found[0]], found[1], ()
        widths = (inputs, *self.hidden_sizes[:-1])
        if len(widths) == 1:
            return [], inputs, self.hidden_sizes
        plain = mlp(widths, activation=self.activation, layer_norm=bool(self.layer_norm))
        return [plain, *self.between(widths[-1])], widths[-1], self.hidden_sizes[-1:]

    def between(self, width: int) -> list[nn.Module]:
        """Returns the layers after a hidden layer: layer norm, if it is on, and the activation."""
        return [*([new_layer_norm(width)] if self.layer_norm else []), self.activation()]

    def _other_hidden_layers(self, inputs: int, copies: int | None) -> tuple[nn.Module, int] | None:
        """Hidden layers of a kind other than mlp."""
        if self.custom is not None:
            return self.custom.trunk(inputs, copies)
        if self.blocks is None:
            return None
        return self.blocks.trunk(inputs, self.hidden_sizes, self.activation, copies), self.hidden_sizes[0]
