"""ReplayBuffer: the newest transitions of a run in a ring of fixed size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.data.sampling import Layout, PackedColumns, RandomRows, gather
from rl_training.types import Batch, EnvSpec

LARGE = 2**62  # far above any capacity, so that the remainder of a draw below it is as good as uniform


class ReplayBuffer(RandomRows):
    """A ring of the columns obs, actions, rewards, next_obs, dones, truncated, and `extra` ones by shape and dtype.

    Rows are numbered from the first ever added; row i rests in slot i % capacity. With `members` it is as many rings
    side by side, [members, capacity, ...], that are filled and drawn from together.
    """

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        *,
        device: torch.device | str = "cpu",
        extra: Mapping[str, Layout] | None = None,
        members: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        super().__init__(device)
        self.capacity, self.members = capacity, members
        self.added = 0
        layout = {**_layout(spec), **(extra or {})}
        lead = (capacity,) if members is None else (members, capacity)
        self.columns = PackedColumns(lead, layout, device)
        # On the device, so that a captured graph that samples sees the ring grow.
        self._size = torch.ones((), dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, rows: Batch) -> None:
        """Put rows behind the newest; the oldest make room."""
        lead = () if self.members is None else (self.members,)
        count = _count(rows, self.columns, lead=lead)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} rows at once to a buffer of capacity {self.capacity}")
        _write(rows, self.columns, self.added % self.capacity, axis=len(lead))
        self._set_added(self.added + count)

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Rows drawn with replacement, [*members, batch_size] of them."""
        if not self.added:
            raise ValueError("cannot sample from an empty replay buffer")
        shape = (*members, batch_size)
        draws = torch.randint(LARGE, shape, generator=self.generator, device=self.generator.device) % self._size
        if self.members is not None:  # each draws from its own ring
            draws = draws + torch.arange(self.members, device=draws.device).unsqueeze(1) * self.capacity
        return gather(self.columns, draws)

    def member(self, index: int) -> MemberRing:
        """One of several rings."""
        return MemberRing(self, index)

    def rows(self, start: int, stop: int, *, member: int | None = None) -> Batch:
        """Rows number start to stop - 1, which must still be in the ring."""
        oldest = self.added - len(self)
        if not oldest <= start <= stop <= self.added:
            raise ValueError(f"rows {start} to {stop} are not in the ring, which holds {oldest} to {self.added}")
        slots = torch.arange(start, stop, device=self.generator.device) % self.capacity
        return gather(self.columns, slots + (member or 0) * self.capacity)

    def restore(self, rows: Batch, start: int, *, member: int | None = None) -> None:
        """Put back rows that were number `start` and on; those the ring has left behind by now are passed over."""
        columns = self._columns_of(member)
        stop = start + _count(rows, columns, lead=())
        added = max(self.added, stop)
        first = max(start, added - self.capacity)
        if first < stop:
            _write({name: rows[name][first - start :] for name in columns}, columns, first % self.capacity)
        self._set_added(added)

    def state_dict(self) -> dict[str, Any]:
        """The generator and the count of rows; the rows themselves are read by `rows` and put back by `restore`."""
        return {**super().state_dict(), "added": self.added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._set_added(state["added"])

    def _columns_of(self, member: int | None) -> Batch:
        return self.columns if member is None else {name: column[member] for name, column in self.columns.items()}

    def _set_added(self, added: int) -> None:
        self.added = added
        self._size.fill_(max(len(self), 1))


class MemberRing:
    """One of several rings that are filled together: what saving and restoring its rows needs."""

    def __init__(self, rings: ReplayBuffer, member: int) -> None:
        self.rings, self.index = rings, member

    @property
    def added(self) -> int:
        return self.rings.added

    def __len__(self) -> int:
        return len(self.rings)

    def rows(self, start: int, stop: int) -> Batch:
        return self.rings.rows(start, stop, member=self.index)

    def restore(self, rows: Batch, start: int) -> None:
        self.rings.restore(rows, start, member=self.index)


def _count(rows: Batch, columns: Batch, *, lead: tuple[int, ...]) -> int:
    """How many rows there are; their columns and shapes must be those of the ring."""
    shapes = {name: tuple(column.shape) for name, column in rows.items()}
    count = rows["rewards"].shape[-1] if "rewards" in rows else 0
    expected = {name: (*lead, count, *column.shape[len(lead) + 1 :]) for name, column in columns.items()}
    if shapes != expected:
        raise ValueError(f"rows must have the columns and shapes {expected}, got {shapes}")
    return count


def _write(rows: Batch, columns: Batch, slot: int, *, axis: int = 0) -> None:
    """From this slot on, and from the ring's beginning where they reach its end."""
    for name, column in columns.items():
        count = rows[name].shape[axis]
        fitting = min(count, column.shape[axis] - slot)
        column.narrow(axis, slot, fitting).copy_(rows[name].narrow(axis, 0, fitting))
        if fitting < count:
            column.narrow(axis, 0, count - fitting).copy_(rows[name].narrow(axis, fitting, count - fitting))


def _layout(spec: EnvSpec) -> dict[str, Layout]:
    obs = (spec.obs_shape, torch.uint8 if spec.obs_dtype == "uint8" else torch.float32)
    number: Layout = ((), torch.float32)
    actions = ((), torch.int64) if spec.action_kind == "discrete" else ((spec.action_dim,), torch.float32)
    return {"obs": obs, "actions": actions, "rewards": number, "next_obs": obs, "dones": number, "truncated": number}
