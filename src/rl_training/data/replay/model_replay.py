"""ModelReplayBuffer: the newest transitions that a dynamics model generated."""

from typing import Any

import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.types import EnvSpec


class ModelReplayBuffer(ReplayBuffer):
    """A ReplayBuffer that samples from its newest `kept` transitions only."""

    writes_on_device = False  # `kept` is counted on the host

    def __init__(self, capacity: int, spec: EnvSpec, *, device: torch.device | str = "cpu") -> None:
        self.kept = capacity  # of the longest rollouts: captured CUDA graphs need memory at a fixed address
        super().__init__(capacity, spec, device=device)
        self._oldest = torch.zeros((), dtype=torch.int64, device=device)  # slot of the oldest

    def keep(self, rows: int) -> None:
        """Sets `kept` and evicts older transitions for good."""
        self.kept = rows
        self._set_added(self.added)

    def state_dict(self, *, member: int | None = None) -> dict[str, Any]:
        return {**super().state_dict(member=member), "gone": self.evicted, "kept": self.kept}

    def load_state_dict(self, state: dict[str, Any], *, member: int | None = None) -> None:
        self.kept = state["kept"]
        super().load_state_dict(state, member=member)

    def _uniform_slots(self, shape: tuple[int, ...]) -> Tensor:
        return (super()._uniform_slots(shape) + self._oldest) % self.capacity

    def _set_added(self, added: int) -> None:
        self.evicted = max(self.evicted, added - self.kept)
        super()._set_added(added)
        self._oldest.fill_(self.evicted % self.capacity)
