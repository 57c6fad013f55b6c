"""The part that all peers' scripts share: inputs, parameters by shared names, and noise in place of random numbers.

It is imported by the Python of a peer's venv, so it uses PyTorch and NumPy only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from precision import use_precision
from torch import Tensor, nn


class Request:
    """One comparison: options with the names of rl_training, initial parameters, columns, noise, and where to save."""

    def __init__(self, text: str) -> None:
        asked = json.loads(text)
        self.algo: str = asked["algo"]
        self.options: dict[str, Any] = asked["options"]
        self.peer_options: dict[str, Any] = asked["peer_options"]
        self.discrete: bool = asked["discrete"]
        self.marks: list[int] = asked["updates"]
        self.source: str = asked.get("source", "")
        self.bits: int = asked["bits"]
        use_precision(self.bits)
        self.output = Path(asked["output"])
        with np.load(asked["input"]) as file:
            self.inputs = {name: file[name] for name in file.files}

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        return {name[len(prefix) + 1 :]: each for name, each in self.inputs.items() if name.startswith(f"{prefix}/")}

    def batches(self) -> Iterable[dict[str, Tensor]]:
        columns, size = self.part("columns"), self.options["batch_size"]
        for start in range(0, len(columns["rewards"]), size):
            yield {name: torch.from_numpy(column[start : start + size]) for name, column in columns.items()}


class Parameters:
    """Parameters by the names of the request, which are those of `nn.Linear` layers in order."""

    layers: ClassVar[tuple[type[nn.Module], ...]] = (nn.Linear,)

    def __init__(
        self, networks: Mapping[str, nn.Module | Sequence[nn.Module]], others: Mapping[str, Tensor] | None = None
    ) -> None:
        self.tensors = dict(others or {})
        for name, parts in networks.items():
            modules = [parts] if isinstance(parts, nn.Module) else parts
            layers = [layer for part in modules for layer in part.modules() if isinstance(layer, self.layers)]
            for number, layer in enumerate(layers):
                self.tensors |= {f"{name}.{number}.{kind}": each for kind, each in self.tensors_of(layer).items()}

    def tensors_of(self, layer: Any) -> dict[str, Tensor]:
        return {"weight": layer.weight, "bias": layer.bias}

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        if values.keys() != self.tensors.keys():
            raise SystemExit(f"the parameters differ by name: {sorted(values.keys() ^ self.tensors.keys())}")
        for name, tensor in self.tensors.items():
            value = torch.from_numpy(values[name]).reshape(tensor.shape)
            if tensor.dtype == value.dtype:
                tensor.data.copy_(value)  # also into a slice
            else:
                tensor.data = value.clone()

    def values(self) -> dict[str, np.ndarray]:
        return {name: tensor.detach().numpy().copy() for name, tensor in self.tensors.items()}


class Noise:
    """Replaces the random numbers of PyTorch by given ones, in the order in which the peer draws them."""

    def __init__(self) -> None:
        self.queue: list[Tensor] = []
        torch.Tensor.normal_ = lambda tensor, mean=0.0, std=1.0: tensor.copy_(mean + std * self.next(tensor))
        torch.Tensor.uniform_ = lambda tensor, low=0.0, high=1.0: tensor.copy_(self.next(tensor))  # drawn in [-1, 1]
        torch.randn_like = lambda tensor: self.next(tensor)

    def next(self, like: Tensor) -> Tensor:
        if not self.queue:
            raise SystemExit(f"the peer draws more noise than rl_training, of shape {tuple(like.shape)}")
        return self.queue.pop(0).reshape(like.shape)

    def fill(self, numbers: Iterable[np.ndarray]) -> None:
        if self.queue:
            raise SystemExit(f"the peer draws less noise than rl_training, {len(self.queue)} tensors are left")
        self.queue = [torch.from_numpy(np.ascontiguousarray(each)) for each in numbers]


class Snapshots:
    """Parameters after the asked numbers of updates."""

    def __init__(self, request: Request, parameters: Parameters) -> None:
        self.request, self.parameters = request, parameters
        self.found: dict[str, np.ndarray] = {}
        parameters.load(request.part("initial"))

    def take(self, update: int) -> None:
        if update in self.request.marks:
            self.found |= {f"{update}/{name}": value for name, value in self.parameters.values().items()}

    def save(self, versions: dict[str, str]) -> None:
        np.savez(self.request.output, **self.found)
        print(json.dumps({"versions": versions}))


def request() -> Request:
    torch.set_num_threads(1)
    return Request(sys.argv[1])
