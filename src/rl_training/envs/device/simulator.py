"""Simulators that keep their own state and hand out tensors: Isaac Lab, ManiSkill, MuJoCo Warp, Brax or your own."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from rl_training.types import EnvSpec


class SimulatorStep(NamedTuple):
    """One step of all environments: tensors, or what `torch.from_dlpack` takes, such as arrays of JAX."""

    obs: Any  # to act on next: the first of the new episode where one ended
    rewards: Any  # [envs]
    terminated: Any  # bool [envs]
    truncated: Any  # bool [envs]
    final_obs: Any = None  # last observations of the episodes that ended; other rows are ignored


class VectorSimulator(ABC):
    """Many environments that one simulator steps together. It starts a new episode in the step that ends one.

    - `spec` has the spaces of one environment; `spec_of_spaces` makes it from Gymnasium's.
    - Actions arrive on the device of the run, [envs, *action_shape], within the bounds of the spec.
    - Without `final_obs`, the value after a truncation is unknown, so truncations count as terminations.
    - `capturable` says that a CUDA graph can capture `step`: fixed addresses, and no value read on the host.
    """

    spec: EnvSpec
    num_envs: int
    capturable: bool = False

    @abstractmethod
    def reset(self, seed: int) -> Any:
        """Starts new episodes in all environments; returns their first observations."""

    @abstractmethod
    def step(self, actions: Tensor) -> SimulatorStep: ...

    def state(self) -> dict[str, Any] | None:
        """Returns the state of all environments, as nested dicts of tensors and JSON values, for an exact resume."""
        return None

    def load_state(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        return None
