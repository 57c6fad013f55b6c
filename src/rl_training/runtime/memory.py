"""The recurrent state of a policy between environment steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rl_training.types import Action, Array, Batch


class Memory:
    """One row per environment in `rows`, which is None at first and for policies without recurrent state.

    Pass `rows` to `act`, then pass the returned action to `keep` with a flag for each ended episode.
    """

    def __init__(self) -> None:
        self.rows: Batch | None = None

    def of(self, count: int, initial: Callable[[int], Batch] | None = None) -> Batch | None:
        """Returns `rows` after checking that it has `count` environments; `initial` is the agent's `initial_memory`."""
        if self.rows is None:
            return None
        if len(self.rows["is_first"]) != count:
            expected = len(self.rows["is_first"])
            raise ValueError(f"this memory has {expected} environments, got observations of {count}; create a new one")
        if initial is not None and (wanted := initial(count)) and _shapes(wanted) != _shapes(self.rows):
            raise ValueError("this memory is of another agent; create a new one, rl_training.Memory(), for each agent")
        return self.rows

    def keep(self, action: Action, ended: torch.Tensor | Array | None = None) -> None:
        """Stores the memory that `act` returned; environments whose episode `ended` start a new one."""
        self.rows = action.memory
        if ended is not None:
            self.forget(ended)

    def forget(self, ended: torch.Tensor | Array | np.bool_ | Sequence[bool] | bool | None = None) -> None:
        """Resets the environments whose episode has ended, or all of them. One environment may have a single flag."""
        if ended is None:
            self.rows = None
        elif self.rows is not None:
            flags, known = torch.atleast_1d(torch.as_tensor(ended)), self.rows["is_first"]
            if flags.shape != known.shape:
                raise ValueError(
                    f"forget needs one flag for each of the {len(known)} environments of this memory, got "
                    f"flags of shape {list(flags.shape)}"
                )
            self.rows = {**self.rows, "is_first": flags.to(known)}


def _shapes(rows: Batch) -> dict[str, torch.Size]:
    return {name: row.shape for name, row in rows.items()}
