"""ReplayBuffer: the newest transitions of a run in a ring of fixed size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.data.sampling import RandomRows, gather
from rl_training.types import Batch, EnvSpec

LARGE = 2**62  # far above any capacity, so that the remainder of a draw below it is as good as uniform


class ReplayBuffer(RandomRows):
    """A ring of the columns obs, actions, rewards, next_obs, dones, truncated, and `extra` ones by shape and dtype.

    Rows are numbered from the first ever added; row i rests in slot i % capacity.
    """

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        *,
        device: torch.device | str = "cpu",
        extra: Mapping[str, tuple[tuple[int, ...], torch.dtype]] | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        super().__init__(device)
        self.capacity = capacity
        self.added = 0
        layout = {**_layout(spec), **(extra or {})}
        # Left empty: memory that no row has reached yet is then never touched.
        self.columns = {
            name: torch.empty(capacity, *shape, dtype=dtype, device=device) for name, (shape, dtype) in layout.items()
        }
        # On the device, so that a captured graph that samples sees the ring grow.
        self._size = torch.ones((), dtype=torch.int64, device=device)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, rows: Batch) -> None:
        """Put rows behind the newest; the oldest make room."""
        count = self._check(rows)
        if count > self.capacity:
            raise ValueError(f"cannot add {count} rows at once to a buffer of capacity {self.capacity}")
        self._write(rows, self.added)
        self._set_added(self.added + count)

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Rows drawn with replacement, [*members, batch_size] of them."""
        if not self.added:
            raise ValueError("cannot sample from an empty replay buffer")
        shape = (*members, batch_size)
        draws = torch.randint(LARGE, shape, generator=self.generator, device=self.generator.device)
        return gather(self.columns, draws % self._size)

    def rows(self, start: int, stop: int) -> Batch:
        """Rows number start to stop - 1, which must still be in the ring."""
        oldest = self.added - len(self)
        if not oldest <= start <= stop <= self.added:
            raise ValueError(f"rows {start} to {stop} are not in the ring, which holds {oldest} to {self.added}")
        return gather(self.columns, torch.arange(start, stop, device=self.generator.device) % self.capacity)

    def restore(self, rows: Batch, start: int) -> None:
        """Put back rows that were number `start` and on; those the ring has left behind by now are passed over."""
        stop = start + self._check(rows)
        added = max(self.added, stop)
        first = max(start, added - self.capacity)
        if first < stop:
            self._write({name: rows[name][first - start :] for name in self.columns}, first)
        self._set_added(added)

    def state_dict(self) -> dict[str, Any]:
        """The generator and the count of rows; the rows themselves are read by `rows` and put back by `restore`."""
        return {**super().state_dict(), "added": self.added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._set_added(state["added"])

    def _check(self, rows: Batch) -> int:
        shapes = {name: tuple(column.shape) for name, column in rows.items()}
        count = len(rows["rewards"]) if "rewards" in rows else 0
        expected = {name: (count, *column.shape[1:]) for name, column in self.columns.items()}
        if shapes != expected:
            raise ValueError(f"rows must have the columns and shapes {expected}, got {shapes}")
        return count

    def _write(self, rows: Batch, start: int) -> None:
        count, slot = len(rows["rewards"]), start % self.capacity
        overhang = slot + count - self.capacity
        if overhang > 0:
            self._write({name: rows[name][-overhang:] for name in self.columns}, start + count - overhang)
            rows, count = {name: rows[name][:-overhang] for name in self.columns}, count - overhang
        for name, column in self.columns.items():
            column[slot : slot + count].copy_(rows[name])

    def _set_added(self, added: int) -> None:
        self.added = added
        self._size.fill_(max(len(self), 1))


def _layout(spec: EnvSpec) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    obs = (spec.obs_shape, torch.uint8 if spec.obs_dtype == "uint8" else torch.float32)
    number: tuple[tuple[int, ...], torch.dtype] = ((), torch.float32)
    actions = ((), torch.int64) if spec.action_kind == "discrete" else ((spec.action_dim,), torch.float32)
    return {"obs": obs, "actions": actions, "rewards": number, "next_obs": obs, "dones": number, "truncated": number}
