"""Networks of the on-policy algorithms, with and without memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch import Tensor, nn

from rl_training.models import heads
from rl_training.models.layers import ACTIVATIONS, Activation, HiddenSizes, Layers
from rl_training.models.masks import action_mask, valid_actions
from rl_training.models.mlp import orthogonal
from rl_training.models.recurrent import IS_FIRST, MEMORIES, MemoryKind, Recurrent
from rl_training.types import Batch, EnvSpec

if TYPE_CHECKING:
    from typing_extensions import Self

PolicyAndValues: TypeAlias = "tuple[heads.Categorical | heads.Gaussian | heads.MultiCategorical, Tensor]"


class PPOModel(nn.Module):
    """Policy and state value: separate networks for vectors, one shared encoder for images.

    With `memory`, an LSTM or GRU of this size follows the encoder: one of the policy and one of the value for vectors,
    a shared one for images. Inputs are then observations [rows, ...] with the memory before them, or sequences
    [rows, time, ...] with the memory before each and `is_first` [rows, time].
    """

    takes_masks: ClassVar[bool] = True
    memory: Recurrent | None

    def __init__(
        self, spec: EnvSpec, hidden_sizes: HiddenSizes = (64, 64), *, activation: Activation = "tanh",
        orthogonal_init: bool = True, log_std_init: float = 0.0, memory: MemoryKind | None = None,
        memory_size: int = 64,
    ) -> None:  # fmt: skip
        super().__init__()
        self.obs_shape = spec.obs_shape
        layers = replace(Layers.of(hidden_sizes), activation=ACTIVATIONS[activation])
        self.encoder, features = layers.encoder(spec)
        self.register_module("memory", None)
        self.register_module("mask", action_mask(spec))
        if memory is not None:
            has_images = spec.obs_dtype == "uint8" or bool(spec.obs_parts)
            self.memory = MEMORIES[memory](features, memory_size, copies=1 if has_images else 2)
            features = memory_size
        outputs = sum(spec.action_sizes) if spec.action_kind == "multi_discrete" else spec.action_dim

        def network(width: int, last_gain: float) -> nn.Sequential:
            plain = layers.network(features, width)
            return orthogonal(plain, last_gain=last_gain) if orthogonal_init else plain

        if orthogonal_init:
            orthogonal(nn.Sequential(self.encoder))
        if self.memory is not None and orthogonal_init:
            self.memory.orthogonal()
        self.actor = _free_policy(spec, network(outputs, 0.01), log_std_init)
        self.value = network(1, 1.0)

    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Self:
        named = {name: getattr(config, name) for name in ("activation", "orthogonal_init", "log_std_init")}
        memory = {} if config.network is None else config.network.memory_options
        return cls(spec, Layers.from_config(spec, config), **named, **memory)

    def forward(self, obs: Tensor, memory: Batch | None = None) -> PolicyAndValues:
        for_policy, for_value, _ = self.features(obs, memory)
        return self.actor(for_policy, *valid_actions(self, obs)), self.value(for_value).squeeze(-1)

    def values(self, obs: Tensor, memory: Batch | None = None) -> Tensor:
        return self.value(self.features(obs, memory)[1]).squeeze(-1)

    def features(self, obs: Tensor, memory: Batch | None = None) -> tuple[Tensor, Tensor, Batch]:
        """Inputs of the policy and of the value, and the memory after the last step."""
        if self.memory is None:
            encoded = self.encoder(obs)
            return encoded, encoded, {}
        memory = self.memory.initial(len(obs)) if memory is None else memory
        is_first = memory[IS_FIRST]
        if is_first.dim() == 2:
            encoded = self.encoder(obs.flatten(0, 1)).unflatten(0, is_first.shape)
            outputs, after = self.memory(encoded, memory)
        else:
            outputs, after = self.memory(self.encoder(obs).unsqueeze(1), {**memory, IS_FIRST: is_first.unsqueeze(1)})
            outputs = outputs.squeeze(1)
        return outputs[..., 0, :], outputs[..., -1, :], after


def _free_policy(spec: EnvSpec, net: nn.Module, log_std: float) -> nn.Module:
    if spec.action_kind == "discrete":
        return heads.CategoricalPolicy(net)
    if spec.action_kind == "multi_discrete":
        return heads.MultiCategoricalPolicy(net, spec.action_sizes)
    return heads.FreeMeanPolicy(net, spec.action_dim, log_std)
