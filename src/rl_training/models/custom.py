"""Networks of your own: a class named `module:Class` in the option `network`, with the class attribute `role`.

| role | created by | forward | used as |
|---|---|---|---|
| features | `Class(spec, **options)` | observations [rows, *spec.obs_shape], or a dict -> [rows, n] | encoder |
| trunk | `Class(inputs, **options)` | [rows, inputs] -> [rows, n] | hidden layers |
| model | `Class.build(spec, config)` | has the parts of the algorithm's `model_type` | whole model |
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from rl_training.messages import describe_error
from rl_training.models.encoders import unpack
from rl_training.models.own_weights import require_known_weights, warn_without_gradients
from rl_training.modules import load_object, option_hint
from rl_training.types import EnvSpec

ROLES = ("features", "trunk", "model")
LAYER_OPTIONS = ("hidden_sizes", "activation", "layer_norm")
FROM_SPEC = ("obs_shape", "obs_dtype", "action_dim")
SCRIPT = "<script>"  # stands for the module of a class that was defined in a script or a notebook
_given: dict[str, type[nn.Module]] = {}  # classes passed as objects in this process, by name


def keep_class(kind: type[Any]) -> str:
    """Keeps a class passed in Python for this process and returns its name `module:Class`."""
    if not issubclass(kind, nn.Module):
        raise ValueError(f"must be a subclass of torch.nn.Module, got the class {kind.__name__}")
    module = SCRIPT if kind.__module__ == "__main__" else kind.__module__
    name = f"{module}:{kind.__qualname__}"
    _given[name] = kind
    return name


class CustomNetwork(NamedTuple):
    """A network class of the user, with its options from the config."""

    name: str
    kind: type[nn.Module]
    role: str
    options: dict[str, Any]
    spec: EnvSpec

    @classmethod
    def load(cls, name: str, options: dict[str, Any], spec: EnvSpec) -> CustomNetwork:
        kind = _given.get(name) or _imported(name)
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            got = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
            raise ValueError(f"network {name} must be a subclass of torch.nn.Module, got {got}")
        role = getattr(kind, "role", None)
        if role not in ROLES:
            raise ValueError(f"network {name} needs a class attribute role: one of {', '.join(ROLES)}, got {role!r}")
        return cls(name, kind, role, options, spec)

    def features(self) -> tuple[nn.Module, int] | None:
        """A new encoder and its number of features; None if the class is no encoder."""
        if self.role != "features":
            return None
        # The widths and activation of the config are those of the hidden layers after the encoder.
        own = {name: value for name, value in self.options.items() if name not in LAYER_OPTIONS}
        module = Features(self._made(lambda: self.kind(self.spec, **own)), self.spec)
        return module, self._width(module, _rows(self.spec, 0), _rows(self.spec, 1), partial(_observed, self.spec))

    def trunk(self, inputs: int, copies: int | None) -> tuple[nn.Module, int] | None:
        """New hidden layers and their width; None if the class is not for hidden layers."""
        if self.role != "trunk":
            return None
        modules = [self._made(lambda: self.kind(inputs, **self.options)) for _ in range(copies or 1)]
        rows = torch.zeros(2, inputs), torch.ones(2, inputs)
        widths = [self._width(module, *rows, lambda count: f"of shape [{count}, {inputs}]") for module in modules]
        return (OwnModule(modules[0]) if copies is None else Copies(modules)), widths[0]

    def model(self, model_type: Any, config: Any) -> nn.Module:
        """A new whole model, with every part that `model_type` has."""
        build = getattr(self.kind, "build", None)
        if build is None:
            raise ValueError(f"network {self.name} has the role model and needs a class method build(spec, config)")
        model = with_spec(self._made(lambda: build(self.spec, config)), self.spec)
        with torch.device("meta"), torch.random.fork_rng(devices=()):
            wanted = model_type.build(self.spec, config.model_copy(update={"network": None}))
        modules = dict(wanted.named_children())
        names = [name for name in (*modules, *vars(wanted)) if not name.startswith("_") and name != "training"]
        missing = [name for name in names if not hasattr(model, name)]
        if missing:
            parts = ", ".join(modules)
            raise ValueError(
                f"network {self.name} has no {' and no '.join(missing)}; a model for this algorithm has the parts "
                f"{parts}, as {model_type.__name__} in rl_training.models has"
            )
        return model

    def _made(self, make: Callable[[], Any]) -> nn.Module:
        try:
            module = make()
        except Exception as error:
            hint = option_hint(self.kind, error, positional=1)
            raise ValueError(f"network {self.name} could not be created: {describe_error(error)}{hint}") from error
        if not isinstance(module, nn.Module):
            raise ValueError(f"network {self.name} must be a torch.nn.Module, got {type(module).__name__}")
        require_known_weights(module, self.name)
        if any(isinstance(part, _BatchNorm) for part in module.modules()):
            raise ValueError(
                f"network {self.name} has batch norm, whose statistics change outside the gradient updates; "
                "use layer norm"
            )
        if len([*module.named_parameters(remove_duplicate=False)]) > len([*module.parameters()]):
            raise ValueError(f"network {self.name} uses one parameter under two names; give each part its own")
        return module

    def _width(self, module: nn.Module, zeros: Tensor, ones: Tensor, describe: Callable[[int], str]) -> int:
        """Checks the output for two rows of zeros and returns its width; random streams stay as they are."""
        lazy = any(isinstance(part, LazyModuleMixin) for part in module.modules())  # gets its first weights here
        try:
            with torch.no_grad(), nullcontext() if lazy else torch.random.fork_rng(devices=()):
                outputs = module(zeros)
        except Exception as error:
            raise ValueError(f"network {self.name} fails on inputs {describe(2)}: {describe_error(error)}") from error
        if isinstance(outputs, Tensor) and outputs.dim() == 2 and len(outputs) == 2 and outputs.is_floating_point():
            self._check_rows(module, torch.stack((zeros[0], ones[0])), describe(1))
            warn_without_gradients(module, zeros, self.name)
            return outputs.shape[1]
        got = f"{outputs.dtype} {_shape(outputs)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(
            f"network {self.name} must return a float tensor [rows, n], here [2, n] for inputs {describe(2)}, got {got}"
        )

    def _check_rows(self, module: nn.Module, rows: Tensor, described: str) -> None:
        """Raises ValueError if the class cannot take one row, or if a row changes the output of another one."""
        was_training = {part: part.training for part in module.modules()}  # a frozen part may stay in eval mode
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=()):
                alone = [module.eval()(row) for row in rows.split(1)]
                together, again = module(rows), module(rows)
        except Exception as error:
            raise ValueError(
                f"network {self.name} fails on inputs of zeros or ones {described}: {describe_error(error)}"
            ) from error
        finally:
            for part, mode in was_training.items():
                part.training = mode
        if any(each.shape != together[:1].shape for each in alone):
            raise ValueError(
                f"network {self.name} must return [1, {together.shape[1]}] for inputs {described}, got "
                f"{_shape(alone[0])}; keep the axis of rows"
            )
        is_random = not together.equal(again)
        if not is_random and not torch.cat(alone).allclose(together, rtol=1e-3, atol=1e-5, equal_nan=True):
            raise ValueError(
                f"network {self.name} gives a row other outputs alone than in a batch; rows are steps of different "
                "episodes, so treat each by itself. For an LSTM or GRU over time, set network.memory"
            )


class OwnModule(nn.Module):
    """A module of the user, whose initial weights are not changed."""

    keeps_initialization = True

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Features(OwnModule):
    """Encoder of the user for observations with any leading axes; it gets packed observations as a dict."""

    def __init__(self, net: nn.Module, spec: EnvSpec) -> None:
        super().__init__(net)
        self.obs_dims, self.parts = len(spec.obs_shape), spec.obs_parts

    def forward(self, obs: Tensor) -> Tensor:
        lead = obs.shape[: obs.dim() - self.obs_dims]
        rows = obs if len(lead) == 1 else obs.flatten(0, len(lead) - 1)
        features = self.net(unpack(rows, self.parts) if self.parts else rows)
        return features if len(lead) == 1 else features.unflatten(0, lead)


class Copies(nn.Module):
    """Independent copies of a module as one batched call: [copies, rows, inputs] -> [copies, rows, n].

    Every parameter has a leading axis of copies, as in `EnsembleLinear`.
    """

    keeps_initialization = True

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.net = modules[0]
        weights = [dict(module.named_parameters()) for module in modules]
        for name, parameter in self.net.named_parameters():
            parameter.data = torch.stack([each[name].detach() for each in weights])

    def forward(self, x: Tensor) -> Tensor:
        def one(parameters: dict[str, Tensor], rows: Tensor) -> Tensor:
            return functional_call(self.net, parameters, (rows,))

        return torch.vmap(one, randomness="different")(dict(self.net.named_parameters()), x)


def with_spec(model: nn.Module, spec: EnvSpec) -> nn.Module:
    """Returns a whole model with the attributes of `FROM_SPEC`, set where it has none."""
    for name in FROM_SPEC:
        if not hasattr(model, name):
            setattr(model, name, getattr(spec, name))
    return model


def check_own_network(learner: Any, spec: EnvSpec, name: str) -> None:
    """Raises ValueError unless the learner acts on two rows of zeros; random streams stay as they are."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()):
            actions = learner.act(_rows(spec, 0), deterministic=True).actions
    except Exception as error:
        raise ValueError(
            f"network {name} fails when {learner.name} acts on observations {_observed(spec, 2)}: "
            f"{describe_error(error)}"
        ) from error
    expected = (2,) if spec.action_kind == "discrete" else (2, spec.action_dim)
    if tuple(actions.shape) != expected:
        raise ValueError(
            f"network {name} results in actions of shape {_shape(actions)}, expected {list(expected)} for 2 rows"
        )


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if "<" not in name:
        return load_object(name, "network")
    found = getattr(sys.modules["__main__"], attribute, None) if module == SCRIPT else None
    if found is None:
        raise ValueError(
            f"network {name} was defined in a script or a function, and this process has no such class; "
            "define it in a module that can be imported, and train with network: module:Class"
        )
    return found


def _rows(spec: EnvSpec, value: int) -> Tensor:
    """Returns two observations whose numbers all have this value."""
    if spec.obs_parts:
        types = {"uint8": torch.uint8, "float32": torch.float32}
        parts = [torch.full((2, part.size), value, dtype=types[part.dtype]) for part in spec.obs_parts]
        return torch.cat([part.view(torch.uint8) for part in parts], -1)
    dtype = torch.uint8 if spec.obs_dtype == "uint8" else torch.float32
    return torch.full((2, *spec.obs_shape), value, dtype=dtype)


def _observed(spec: EnvSpec, rows: int) -> str:
    """Describes the shapes of observations as a network receives them."""
    if spec.obs_parts:
        parts = [f"{part.name!r} {part.dtype} {[rows, *part.shape]}" for part in spec.obs_parts]
        return f"with the parts {', '.join(parts)}"
    joined = " (a Dict or Tuple without images arrives as one vector)"
    is_joined = (spec.obs_space or {}).get("type") in ("Dict", "Tuple")
    return f"of shape {[rows, *spec.obs_shape]}{joined if is_joined else ''}"


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
