"""The base class of environments that are batched PyTorch."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypeAlias

from torch import Tensor

from rl_training.envs.device.draws import Draws
from rl_training.types import EnvSpec

State: TypeAlias = "dict[str, Tensor]"  # one row per environment


class Outcome(NamedTuple):
    """One step of all environments."""

    state: State
    rewards: Tensor  # float32 [envs]
    terminated: Tensor  # bool [envs]


class TensorEnv(ABC):
    """Many copies of one environment. Methods depend on their arguments alone, and read no value on the host.

    - `spec` describes the spaces as the library sees them: Box actions arrive in [-1, 1], others count from 0.
    - `time_limit` is the number of steps after which an episode is truncated.
    - Random numbers come from `draws` alone.
    """

    spec: ClassVar[EnvSpec]
    time_limit: ClassVar[int | None] = None

    @abstractmethod
    def initial(self, draws: Draws) -> State:
        """Returns the first state of an episode for each row."""

    @abstractmethod
    def step(self, state: State, actions: Tensor, draws: Draws) -> Outcome: ...

    @abstractmethod
    def observe(self, state: State) -> Tensor:
        """Returns the observations [envs, *spec.obs_shape]."""
