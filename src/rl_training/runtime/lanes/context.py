"""The inputs a lane is built from, and the declarations that a run reads before it builds one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms import AlgorithmConfig, Learner
from rl_training.data import RecurrentReplayBuffer, ReplayBuffer, TransitionDataset
from rl_training.runtime.lanes.memory_limits import require_memory
from rl_training.runtime.state import Lane
from rl_training.types import EnvSpec, Policy


@dataclass(frozen=True)
class FineTuning:
    """Settings of a run that trains offline first and online afterwards."""

    offline_steps: int
    online_steps: int
    offline_ratio: float  # fraction of a batch from the dataset, in the online phase
    updates_per_step: int
    rewards: Callable[[Tensor], Tensor]  # the dataset's reward transform, applied to online rewards too


@dataclass(frozen=True)
class LaneContext:
    """The parts of a run, several learners for a population. `policy` acts for all of them."""

    learners: Sequence[Learner]
    policy: Policy
    spec: EnvSpec
    options: Any  # the algorithm's config
    seed: int
    device: torch.device
    compile: bool = False
    overlap: bool = False
    pool: Any = None  # an EnvPool or, for a population, a PoolGroup
    dataset: TransitionDataset | None = None  # of an offline run, or of the expert
    dataset_stride: int = 1
    env_id: Any = None
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    fine_tuning: FineTuning | None = None
    total_timesteps: int | None = None

    @property
    def learner(self) -> Learner:
        return self.learners[0]

    def require_memory(self, option: str, rows: int, row_bytes: int, *, filled: int | None = None) -> None:
        """Raises NotEnoughMemoryError if a replay buffer of `rows` rows for each learner does not fit.

        `filled` is the number of rows that the run will write, by default one for each of its steps.
        """
        filled = self.total_timesteps if filled is None else filled
        size = row_bytes * len(self.learners)
        require_memory(option, rows, size, filled=rows if filled is None else filled, device=self.device)


class TrainingLane:
    """Base class of the lanes: the declarations that a run reads before it builds one."""

    learner_type: ClassVar[type[Learner]] = Learner  # base class of the algorithm
    config_types: ClassVar[tuple[type[AlgorithmConfig], ...]] = (AlgorithmConfig,)  # base classes of its options
    needs_expert: ClassVar[bool] = False  # the algorithm must declare needs_expert
    offline: ClassVar[bool] = False  # trains on a dataset from the first step on
    acts: ClassVar[bool] = True  # steps environments
    takes_population: ClassVar[bool] = False  # several seeds can share one lane
    with_online_steps: ClassVar[str] = ""  # name of the lane for runs with online_steps, if they are supported
    supplies: ClassVar[tuple[str, ...]] = ()  # columns that it adds to online transitions
    times_updates: ClassVar[bool] = False  # updates can be timed beforehand, which `compile: auto` needs
    compile_after: ClassVar[Mapping[str, int]] = {}  # else, updates from which it compiles, by device type
    can_overlap: ClassVar[bool] = False  # updates can run while the environments step
    replay: ReplayBuffer | RecurrentReplayBuffer | None = None
    stop_by: float = math.inf
    overlap: bool = False  # `collect` runs the updates itself, and `due` returns 0
    run_updates: Callable[[int], None]  # set by the training loop
    _due: int = 0  # updates after the last `collect`

    @classmethod
    def build(cls, context: LaneContext) -> Lane:
        raise NotImplementedError

    @classmethod
    def count_updates(cls, options: Any, steps: int, num_envs: int) -> int:
        """Returns the number of updates in a run of `steps` steps."""
        return steps

    @classmethod
    def first_update(cls, options: Any) -> str:
        """Describes when updates start, or returns "" for lanes that update from the start."""
        return ""

    @classmethod
    def steps_to_update(cls, options: Any, num_envs: int) -> int:
        """Returns the number of steps that a run must have for an update."""
        return 0

    def due(self) -> int:
        return self._due

    def replay_parts(self) -> dict[str, Any]:
        return {} if self.replay is None else self.replay.parts()
