"""What a policy remembers of the episodes it is in, from one step to the next."""

from __future__ import annotations

import torch

from rl_training.types import Action, Array, Batch


class Memory:
    """Empty at first; `rows` then has a row for each environment, or stays empty if the policy goes by what it sees.

    Hand `rows` to `act`, give what it returns to `keep`, and say where episodes have ended.
    """

    def __init__(self) -> None:
        self.rows: Batch | None = None

    def of(self, count: int) -> Batch | None:
        """`rows`, which must be of so many environments."""
        if self.rows is not None and len(self.rows["is_first"]) != count:
            known = len(self.rows["is_first"])
            raise ValueError(f"this memory is of {known} environments, got observations of {count}; make a new one")
        return self.rows

    def keep(self, action: Action, ended: torch.Tensor | Array | None = None) -> None:
        """What the policy wants remembered; where an episode has `ended`, the next observation begins another."""
        self.rows = action.memory
        if ended is not None:
            self.forget(ended)

    def forget(self, ended: torch.Tensor | Array | None = None) -> None:
        """Begin anew in those environments whose episode has ended, or in all."""
        if ended is None:
            self.rows = None
        elif self.rows is not None:
            self.rows = {**self.rows, "is_first": torch.as_tensor(ended).to(self.rows["is_first"])}
