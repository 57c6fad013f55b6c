"""The recurrent state of a policy between environment steps."""

from __future__ import annotations

import torch

from rl_training.types import Action, Array, Batch


class Memory:
    """One row per environment in `rows`, which is None at first and for policies without recurrent state.

    Pass `rows` to `act`, then pass the returned action to `keep` with a flag for each ended episode.
    """

    def __init__(self) -> None:
        self.rows: Batch | None = None

    def of(self, count: int) -> Batch | None:
        """Returns `rows` after checking that it has `count` environments."""
        if self.rows is not None and len(self.rows["is_first"]) != count:
            expected = len(self.rows["is_first"])
            raise ValueError(f"this memory has {expected} environments, got observations of {count}; create a new one")
        return self.rows

    def keep(self, action: Action, ended: torch.Tensor | Array | None = None) -> None:
        """Stores the memory that `act` returned; environments whose episode `ended` start a new one."""
        self.rows = action.memory
        if ended is not None:
            self.forget(ended)

    def forget(self, ended: torch.Tensor | Array | None = None) -> None:
        """Resets the environments whose episode has ended, or all of them."""
        if ended is None:
            self.rows = None
        elif self.rows is not None:
            self.rows = {**self.rows, "is_first": torch.as_tensor(ended).to(self.rows["is_first"])}
