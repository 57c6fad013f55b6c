"""Goals in the observations of goal-conditioned environments, and the store of those that replace them in a replay."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.data.sampling import Layout, PackedColumns, gather
from rl_training.data.spaces import Leaf, observations_of
from rl_training.data.spaces.observations import Vector
from rl_training.types import Array, Batch, EnvSpec

OBSERVATION, ACHIEVED, DESIRED = KEYS = ("observation", "achieved_goal", "desired_goal")


class GoalColumns:
    """Places of the goals in rows of observations, and their conversion to the environment's own form."""

    def __init__(self, spec: EnvSpec) -> None:
        observations = observations_of(spec)
        parts = {} if observations is None else observations.space.get("subspaces", {})
        if observations is None or not isinstance(parts, dict) or not set(KEYS) <= parts.keys():
            found = f"the keys {', '.join(parts)}" if isinstance(parts, dict) and parts else "no such keys"
            raise ValueError(
                f"hindsight needs Dict observations with {', '.join(KEYS)}, and the environment has {found}; "
                "set hindsight to none"
            )
        goal = parts[ACHIEVED]
        if goal != parts[DESIRED] or "subspaces" in goal or "layout" in goal:
            raise ValueError("hindsight needs an achieved_goal and a desired_goal that are vectors of equal shape")
        self._vector = Vector(Leaf((ACHIEVED,), goal))
        part = self._vector.part
        self.size = part.bytes if observations.is_packed else part.size
        self.dtype = torch.uint8 if observations.is_packed else torch.float32
        starts = {key: observations.place_of(key) for key in (ACHIEVED, DESIRED)}
        self._places = {key: slice(start, start + self.size) for key, start in starts.items()}

    def achieved(self, obs: Array) -> Array:
        return obs[..., self._places[ACHIEVED]]

    def desired(self, obs: Array) -> Array:
        return obs[..., self._places[DESIRED]]

    def replace(self, obs: Tensor, goals: Tensor, where: Tensor) -> None:
        """Replaces the desired goals of rows [..., width] where a flag is set."""
        desired = obs[..., self._places[DESIRED]]
        desired.copy_(torch.where(where.unsqueeze(-1), goals, desired))

    def own(self, rows: Array) -> Array:
        """Converts goals [rows, size] to the environment's own form."""
        return self._vector.decode(np.ascontiguousarray(rows).view(np.float32))


class GoalStore:
    """`count` other goals of each transition of a replay buffer, with the rewards and terminal flags under them.

    Rows have the numbers and slots of the transitions. `numbers` holds the number of the transition that a row was
    written for: rows of other transitions are stale.
    """

    def __init__(
        self, capacity: int, columns: GoalColumns, count: int, *, members: int | None, device: torch.device
    ) -> None:
        self.capacity, self.members, self.device = capacity, members, device
        lead = (capacity,) if members is None else (members, capacity)
        self.columns = PackedColumns(lead, self.layout(columns, count), device)
        self.columns["numbers"].fill_(-1)

    @staticmethod
    def layout(columns: GoalColumns, count: int) -> dict[str, Layout]:
        each: Layout = ((count,), torch.float32)
        return {
            "goals": ((count, columns.size), columns.dtype),
            "rewards": each, "dones": each, "numbers": ((), torch.int64),
        }  # fmt: skip

    def sample(self, positions: Tensor, numbers: Tensor, choices: Tensor) -> tuple[Batch, Tensor]:
        """Returns the chosen goal of each transition, with its reward and flag, and whether there is one.

        `positions` are flat indices over all members, `numbers` those of the transitions there.
        """
        rows = gather(self.columns, positions)
        written, index = rows.pop("numbers") == numbers, choices.unsqueeze(-1)
        goals = torch.take_along_dim(rows.pop("goals"), index.unsqueeze(-1), -2).squeeze(-2)
        return {"goals": goals, **{name: each.gather(-1, index).squeeze(-1) for name, each in rows.items()}}, written

    def rows(self, start: int, stop: int, *, member: int = 0) -> Batch:
        """Returns the goals of transitions number start to stop - 1; rows that are not written are zeros."""
        numbers = torch.arange(start, stop, device=self.device)
        rows = gather(self.columns, numbers % self.capacity + member * self.capacity)
        stale = rows["numbers"] != numbers
        cleared = {name: each.masked_fill(stale.view(-1, *[1] * (each.dim() - 1)), 0) for name, each in rows.items()}
        return {**cleared, "numbers": rows["numbers"].masked_fill(stale, -1)}

    def put(self, rows: Batch, numbers: Tensor, *, member: int = 0) -> None:
        """Writes the goals of these transitions, of which there are at most as many as the store holds."""
        positions = (numbers % self.capacity + member * self.capacity).to(self.device)
        if self.members is not None:
            rows = {name: each.unsqueeze(0) for name, each in rows.items()}
        self.columns.put(positions, rows)
