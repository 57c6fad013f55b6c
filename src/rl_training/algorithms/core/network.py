"""The option `network` of every algorithm."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PositiveInt, model_validator
from torch import nn

from rl_training.models.custom import LAYER_OPTIONS, keep_class
from rl_training.models.layers import ACTIVATIONS, KINDS, Activation
from rl_training.models.recurrent import MemoryKind
from rl_training.models.simba import CRITIC_HIDDEN_SIZES, HIDDEN_SIZES

MEMORY_OPTIONS = ("memory", "memory_size")
SIMBA_OPTIONS = ("critic_hidden_sizes",)
SIMBA = ("simba", "simba_v2")  # kinds of residual blocks
# Options of an algorithm that have another default with SimBa networks.
SIMBA_DEFAULTS = {"hidden_sizes": HIDDEN_SIZES, "critic_hidden_sizes": CRITIC_HIDDEN_SIZES, "normalize_obs": True}
_WIDEST = 1_000_000  # units of a hidden layer, in hints


class NetworkConfig(BaseModel):
    """Networks of the policy and of the value functions. Other keys are options of your own class."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    kind: str = Field("mlp", description=f"{', '.join(KINDS)}, or module:Class of your own")
    hidden_sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="widths of the hidden layers; none: the algorithm's hidden_sizes"
    )
    activation: Activation | None = Field(
        None, description="activation of the hidden layers; none: the algorithm's own"
    )
    layer_norm: bool | None = Field(
        None, description="layer norm before each activation of the hidden layers; none: the algorithm's own"
    )
    critic_hidden_sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="hidden_sizes of the critics, for simba and simba_v2; none: [512, 512]"
    )
    memory: MemoryKind | None = Field(
        None, description="recurrent layers behind the encoder: lstm or gru; none: no memory"
    )
    memory_size: PositiveInt | None = Field(None, description="width of the recurrent layers; none: 64")

    @model_validator(mode="after")
    def _check_kind_and_keys(self) -> NetworkConfig:
        if self.kind in get_args(MemoryKind):
            raise ValueError(f"{self.kind} is a memory, not a kind of hidden layers; set network.memory to {self.kind}")
        if self.kind not in KINDS:
            if not re.fullmatch(r"[\w.<>]+:[\w.<>]+", self.kind):
                raise ValueError(f"kind must be {', '.join(KINDS)} or module:Class of your own, got {self.kind!r}")
            return self
        known = (*LAYER_OPTIONS, *SIMBA_OPTIONS, *MEMORY_OPTIONS)
        for name in self.__pydantic_extra__:
            near = difflib.get_close_matches(name, ("kind", *known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"{self.kind} has {', '.join(known)}"
            raise ValueError(f"unknown key {name!r}; {hint}")
        return self

    @model_validator(mode="after")
    def _check_simba_keys(self) -> NetworkConfig:
        if self.kind in SIMBA and self.layer_norm is not None:
            raise ValueError(f"{self.kind} has a normalisation of its own in every block; leave out layer_norm")
        if self.kind not in SIMBA and self.critic_hidden_sizes is not None:
            raise ValueError(f"critic_hidden_sizes is for {' and '.join(SIMBA)}, not for {self.kind}; leave it out")
        return self

    @model_validator(mode="after")
    def _size_needs_memory(self) -> NetworkConfig:
        if self.memory_size is not None and self.memory is None:
            raise ValueError(f"memory_size is {self.memory_size}, but there is no memory; set memory to lstm or gru")
        return self

    @property
    def memory_options(self) -> dict[str, Any]:
        """Options of the recurrent layers that have a value."""
        return {name: value for name in MEMORY_OPTIONS if (value := getattr(self, name)) is not None}

    def given(self) -> dict[str, Any]:
        """All options but `kind` that have a value; those of a class of your own."""
        named = {name: value for name in LAYER_OPTIONS if (value := getattr(self, name)) is not None}
        return {**named, **self.__pydantic_extra__}


def _read(value: Any) -> Any:
    """Reads the short forms: a word or a class stands for `kind`."""
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if isinstance(kind, type):
        kind = keep_class(kind)
    _refuse_other_forms(value)
    if isinstance(kind, str):
        return {**(value if isinstance(value, Mapping) else {}), "kind": kind}
    return value


def _refuse_other_forms(value: Any) -> None:
    """Raises an error for values as other libraries write them, with the form to use here."""
    activation = value.get("activation") if isinstance(value, Mapping) else None
    kind = activation if isinstance(activation, type) else type(activation)
    name = next((name for name, known in ACTIVATIONS.items() if known.__name__ == kind.__name__), None)
    if name is not None:
        raise ValueError(f"activation must be a word; use {name!r} for {kind.__name__}")
    if isinstance(value, nn.Module):
        raise ValueError(f"must be a class, got an object; pass the class {type(value).__name__} itself")
    sizes = list(value) if isinstance(value, list | tuple) else [value]
    if sizes and all(type(size) is int and 0 < size < _WIDEST for size in sizes):
        raise ValueError(f"must be a word, a class or a mapping, got {value}; use hidden_sizes={sizes}")


Network = Annotated[NetworkConfig | None, BeforeValidator(_read)]


def merge_network(values: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Sets the options that `network` also has to its values; raises an error if both are given and differ."""
    merged, network = dict(values), values.get("network")
    inner = network.model_dump() if isinstance(network, NetworkConfig) else network
    for name in (*LAYER_OPTIONS, *SIMBA_OPTIONS):
        value = inner.get(name) if isinstance(inner, Mapping) else None
        if name not in options or value is None:
            continue
        if name in values and _listed(values[name]) != _listed(value):
            raise ValueError(f"{name} is {_listed(values[name])}, but network.{name} is {_listed(value)}; set one")
        merged[name] = value
    kind = inner.get("kind") if isinstance(inner, Mapping) else inner
    if isinstance(kind, str) and kind in SIMBA:
        published = {**SIMBA_DEFAULTS, "normalize_rewards": kind == "simba_v2"}
        defaults = {name: value for name, value in published.items() if name in options}
        return {**defaults, **merged}
    return merged


def check_blocks(config: Any) -> None:
    """Raises an error unless all blocks of a simba or simba_v2 network have one width."""
    critics = getattr(config, "critic_hidden_sizes", config.network.critic_hidden_sizes)
    sizes = {"hidden_sizes": config.hidden_sizes, "critic_hidden_sizes": critics}
    for name, widths in sizes.items():
        if widths is not None and len(set(widths)) != 1:
            raise ValueError(
                f"{name} of a {config.network.kind} network has one width for each residual block, all equal, "
                f"such as [256, 256]; got {_listed(widths)}"
            )


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
