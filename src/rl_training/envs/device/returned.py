"""Checks of the tensors that environments and simulators on a device return. They read no value on the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rl_training.envs.checks.returned import FINITE
from rl_training.envs.device.base import Outcome, State
from rl_training.envs.pools.group import EnvError
from rl_training.types import EnvSpec

NOT_FINITE = f"step or reset returned a NaN or infinite observation or reward{FINITE}"


class Returned:
    """Checks the tensors of the environment `name`, with one row for each of `num_envs` environments."""

    def __init__(self, name: str, spec: EnvSpec, num_envs: int, device: torch.device) -> None:
        self.name, self.spec, self.num_envs, self.device = name, spec, num_envs, device

    def obs(self, value: Any, what: str) -> Tensor:
        obs = self.tensor(value, what, self.spec.obs_shape)
        if obs.dtype != getattr(torch, self.spec.obs_dtype):
            raise self.error(
                f"{what} of dtype {_name(obs.dtype)}, but its spec has {self.spec.obs_dtype}; convert them"
            )
        return obs

    def flags(self, value: Any, what: str) -> Tensor:
        flags = self.tensor(value, what, ())
        if flags.is_floating_point():
            raise self.error(f"{what} of dtype {_name(flags.dtype)}; return bool")
        return flags.bool()

    def tensor(self, value: Any, what: str, shape: tuple[int, ...]) -> Tensor:
        if not isinstance(value, Tensor) and not hasattr(value, "__dlpack__"):
            raise self.error(f"{what} of type {type(value).__name__}; return a tensor or an array with DLPack")
        tensor = value if isinstance(value, Tensor) else from_dlpack(value)
        if tensor.shape != (expected := (self.num_envs, *shape)):
            raise self.error(f"{what} of shape {tuple(tensor.shape)}, expected {expected}")
        if tensor.device.type != self.device.type:
            raise self.error(f"{what} on {tensor.device}, but the run is on {self.device}; set device to one of them")
        return tensor

    def outcome(self, outcome: Outcome, before: State) -> Outcome:
        """Returns the step of a `TensorEnv`, whose state must have the form of the state before."""
        old, new = ({name: (x.dtype, x.shape) for name, x in state.items()} for state in (before, outcome.state))
        if old != new:
            name = next(name for name in [*old, *new] if old.get(name) != new.get(name))
            there, here = (_form(each[name]) if name in each else "absent" for each in (old, new))
            raise self.error(
                f"step returned another form of state than initial: {name!r} is {here}, not {there}; "
                "return the same names, dtypes and shapes"
            )
        rewards = self.tensor(outcome.rewards, "step returned rewards", ()).float()
        return Outcome(outcome.state, rewards, self.flags(outcome.terminated, "step returned terminated"))

    def error(self, sentence: str) -> EnvError:
        return EnvError(f"{self.name}.{sentence}")


def _form(form: tuple[torch.dtype, torch.Size]) -> str:
    return f"{_name(form[0])} {list(form[1])}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
