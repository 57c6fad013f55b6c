"""ReplayBuffer: the newest transitions of a run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.data.replay.priorities import Priorities
from rl_training.data.sampling import Layout, PackedColumns, SeededSampler, gather, row_bytes
from rl_training.types import Batch, EnvSpec

LARGE = 2**62  # so far above any capacity that its remainder is uniform for all practical purposes


class ReplayBuffer(SeededSampler):
    """Transitions in fixed memory; when it is full, the newest replace the oldest.

    Columns: obs, actions, rewards, next_obs, dones, truncated, and those of `extra` by shape and dtype.

    - Transition i, counted from the first ever added, is stored in slot i % capacity.
    - With `members`, columns are [members, capacity, ...]: one buffer a member, filled and sampled together.
    - `stride` is the number of environments: transitions of one environment are `stride` rows apart.
    - With `n_step` > 1, `rewards` are n-step returns and `discounts` holds the discount of the next value.
    - With `prioritized`, batches also hold `slots` and `probabilities`, relative to uniform sampling.
    """

    writes_on_device: ClassVar[bool] = True  # has `write`

    def __init__(
        self, capacity: int, spec: EnvSpec, *, device: torch.device | str = "cpu",
        extra: Mapping[str, Layout] | None = None, members: int | None = None, stride: int = 1, n_step: int = 1,
        gamma: float = 0.99, prioritized: bool = False, priority_alpha: float = 0.6,
    ) -> None:  # fmt: skip
        for name, value in {"capacity": capacity, "stride": stride, "n_step": n_step}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        super().__init__(device)
        self.capacity, self.members, self.stride, self.n_step, self.gamma = capacity, members, stride, n_step, gamma
        self.added = self.evicted = 0  # transitions ever added, and ever evicted
        lead = (capacity,) if members is None else (members, capacity)
        self.columns = PackedColumns(lead, {**self.layout(spec), **(extra or {})}, device)
        # On the device, so that captured CUDA graphs see the buffer grow.
        self._count = torch.zeros((), dtype=torch.int64, device=device)  # transitions ever added
        self._size = torch.ones((), dtype=torch.int64, device=device)
        self._newest = torch.zeros((), dtype=torch.int64, device=device)  # slot of the newest
        self._steps = stride * torch.arange(n_step, device=device)
        self._offsets = None if members is None else capacity * torch.arange(members, device=device)
        self._last_shapes: dict[str, torch.Size] | None = None  # of the rows added last
        self._last_count = 0
        self.priorities: Priorities | None = None
        if prioritized:
            self.priorities = Priorities(capacity, alpha=priority_alpha, members=members, device=device)

    def __len__(self) -> int:
        return self.added - self.evicted

    def parts(self) -> dict[str, Any]:
        """Row stores to save in checkpoints, by name."""
        return {"replay": self}

    def add(self, rows: Batch) -> None:
        """Adds transitions, [rows, ...] or in a population [members, rows, ...]."""
        count = self._checked_count(rows)
        _write(rows, self.columns, self.added % self.capacity, axis=0 if self.members is None else 1)
        if self.priorities is not None:
            self.priorities.renew(self._slots(self.added, self.added + count))
        self._set_added(self.added + count)

    def write(self, rows: Batch) -> None:
        """Adds transitions without the host, so that a CUDA graph can capture it; call `advance` after each replay."""
        count = self._checked_count(rows)
        slots = (self._count + torch.arange(count, device=self._count.device)) % self.capacity
        self.columns.put(self._positions(slots.expand(self.members or 1, -1)).flatten(), rows)
        if self.priorities is not None:
            self.priorities.renew(slots)
        self._count += count
        torch.clamp(self._count, max=self.capacity, out=self._size)
        torch.remainder(self._count - 1, self.capacity, out=self._newest)

    def advance(self, count: int) -> None:
        """Counts transitions on the host that `write` has added."""
        self.added += count
        self.evicted = max(self.evicted, self.added - self.capacity)

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Samples transitions with replacement, [*members, batch_size]."""
        if not self.added:
            raise ValueError("cannot sample from an empty replay buffer")
        shape = (*members, batch_size)
        if self.priorities is None:
            return self._batch(self._uniform_slots(shape))
        slots, probabilities = self.priorities.sample(shape, self.generator)
        return {**self._batch(slots), "slots": slots, "probabilities": (probabilities * self._size).float()}

    def set_priorities(self, slots: Tensor, priorities: Tensor) -> None:
        """Sets priorities from TD errors; call it before `add`, which may overwrite these slots."""
        if self.priorities is None:
            raise ValueError("this replay buffer samples uniformly; create it with prioritized=True")
        self.priorities.set(slots, priorities)

    @staticmethod
    def layout(spec: EnvSpec) -> dict[str, Layout]:
        obs = (spec.obs_shape, torch.uint8 if spec.obs_dtype == "uint8" else torch.float32)
        number: Layout = ((), torch.float32)
        entries = () if spec.action_kind == "discrete" else (spec.action_dim,)
        actions = (entries, torch.float32 if spec.action_kind == "box" else torch.int64)
        flags = {"dones": number, "truncated": number}
        return {"obs": obs, "actions": actions, "rewards": number, "next_obs": obs, **flags}

    @classmethod
    def row_bytes(cls, spec: EnvSpec, *, extra: Mapping[str, Layout] | None = None, prioritized: bool = False) -> int:
        """Returns the bytes that one transition takes."""
        return row_bytes({**cls.layout(spec), **(extra or {})}) + 8 * prioritized

    def member(self, index: int) -> MemberReplay:
        return MemberReplay(self, index)

    def rows(self, start: int, stop: int, *, member: int | None = None) -> Batch:
        """Returns transitions number start to stop - 1."""
        if not self.evicted <= start <= stop <= self.added:
            stored = f"{self.evicted} to {self.added}"
            raise ValueError(f"transitions {start} to {stop} are not stored; the buffer holds {stored}")
        return gather(self.columns, self._slots(start, stop) + (member or 0) * self.capacity)

    def restore(self, rows: Batch, start: int, *, member: int | None = None) -> None:
        """Restores transitions from number `start` on; skips those that are older than the buffer holds."""
        columns = self._columns_of(member)
        stop = start + _count(rows, columns, lead=())
        added = max(self.added, stop)
        first = max(start, added - self.capacity)
        if first < stop:
            _write({name: rows[name][first - start :] for name in columns}, columns, first % self.capacity)
            if (priorities := self._priorities_of(member)) is not None:
                priorities.renew(self._slots(first, stop))
        self._set_added(added)

    def mark_boundary(self, *, member: int | None = None) -> None:
        """Marks the newest transitions as truncated, so that no n-step return crosses into what is added next."""
        newest = self._slots(max(self.added - self.stride, 0), self.added)
        truncated, dones = (self._columns_of(member)[name] for name in ("truncated", "dones"))
        truncated[newest] = 1 - dones[newest]

    def state_dict(self, *, member: int | None = None) -> dict[str, Any]:
        """Generator, count and priorities; `rows` and `restore` save and load the transitions."""
        state = {**super().state_dict(), "added": self.added}
        if (priorities := self._priorities_of(member)) is not None:
            state["priorities"] = priorities.state_dict(used=min(self.added, self.capacity))
        return state

    def load_state_dict(self, state: dict[str, Any], *, member: int | None = None) -> None:
        super().load_state_dict(state)
        self.evicted = state.get("gone", 0)
        self._set_added(state["added"])
        if (priorities := self._priorities_of(member)) is not None:
            priorities.load_state_dict(state["priorities"])

    def _checked_count(self, rows: Batch) -> int:
        """Number of rows that are to be added; raises ValueError if they do not fit the buffer."""
        shapes = {name: column.shape for name, column in rows.items()}
        if shapes == self._last_shapes:  # rows of these shapes have been checked
            return self._last_count
        count = _count(rows, self.columns, lead=() if self.members is None else (self.members,))
        if count > self.capacity:
            raise ValueError(f"cannot add {count} transitions at once to a buffer of capacity {self.capacity}")
        if count % self.stride:
            raise ValueError(f"transitions must be whole steps of {self.stride} environments, got {count}")
        self._last_shapes, self._last_count = shapes, count
        return count

    def _uniform_slots(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(LARGE, shape, generator=self.generator, device=self.generator.device) % self._size

    def _batch(self, slots: Tensor) -> Batch:
        """Transitions in these slots; n-step returns stop at the end of an episode and at the newest transition."""
        batch = gather(self.columns, self._positions(slots))
        if self.n_step == 1:
            return batch
        window = self._positions((slots.unsqueeze(-1) + self._steps) % self.capacity)
        steps = gather({name: self.columns[name].view(-1) for name in ("rewards", "dones", "truncated")}, window)
        newer = (self._newest - slots) % self.capacity  # number of transitions added later
        is_newest = self._steps + self.stride > newer.unsqueeze(-1)  # of its environment, or beyond it
        ended = (steps["dones"] + steps["truncated"] > 0) | is_newest
        returns, last, discounts = n_step_returns(steps["rewards"], ended, self.gamma)
        final = gather(self.columns, self._positions((slots + last * self.stride) % self.capacity))
        batch |= {name: final[name] for name in ("next_obs", "dones", "truncated")}
        return {**batch, "rewards": returns, "discounts": discounts}

    def _positions(self, slots: Tensor) -> Tensor:
        """Flat index over all members of slots [members, ...]."""
        return slots if self._offsets is None else slots + self._offsets.view(-1, *[1] * (slots.dim() - 1))

    def _slots(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.generator.device) % self.capacity

    def _priorities_of(self, member: int | None) -> Priorities | None:
        return self.priorities if self.priorities is None or member is None else self.priorities.member(member)

    def _columns_of(self, member: int | None) -> Batch:
        return self.columns if member is None else {name: column[member] for name, column in self.columns.items()}

    def _set_added(self, added: int) -> None:
        self.advance(added - self.added)
        self._count.fill_(added)
        self._size.fill_(max(len(self), 1))
        self._newest.fill_((added - 1) % self.capacity)


class MemberReplay:
    """Saves and restores one member of a ReplayBuffer."""

    def __init__(self, replay: ReplayBuffer, member: int) -> None:
        self.replay, self.index = replay, member
        self.rows, self.restore = partial(replay.rows, member=member), partial(replay.restore, member=member)
        self.mark_boundary = partial(replay.mark_boundary, member=member)
        self.state_dict = partial(replay.state_dict, member=member)
        self.load_state_dict = partial(replay.load_state_dict, member=member)

    @property
    def added(self) -> int:
        return self.replay.added

    def __len__(self) -> int:
        return len(self.replay)

    def parts(self) -> dict[str, Any]:
        parts = self.replay.parts()
        return {name: self if part is self.replay else part.member(self.index) for name, part in parts.items()}


def _count(rows: Batch, columns: Batch, *, lead: tuple[int, ...]) -> int:
    """Number of rows; raises ValueError unless columns and shapes match the buffer's."""
    count = rows["rewards"].shape[-1] if "rewards" in rows else 0
    require_shapes(rows, {name: (*lead, count, *column.shape[len(lead) + 1 :]) for name, column in columns.items()})
    return count


def require_shapes(rows: Batch, expected: Mapping[str, tuple[int, ...]]) -> None:
    shapes = {name: tuple(column.shape) for name, column in rows.items()}
    if shapes != expected:
        raise ValueError(f"transitions must have the columns and shapes {expected}, got {shapes}")


def _write(rows: Batch, columns: Batch, slot: int, *, axis: int = 0) -> None:
    """Writes rows from this slot on; rows beyond the last slot continue at slot 0.

    Rows of the host are sent without waiting for the device. Pinned rows must stay unchanged until it has read them.
    """
    if isinstance(columns, PackedColumns):
        if columns.matrix.device.type == "cpu":
            _write_on_host(rows, columns.arrays, slot, axis)
            return
        rows, columns = columns.packed(rows), columns.stored
    before = (slice(None),) * axis
    for name, column in columns.items():
        given, last = rows[name], column.shape[axis]
        stop = slot + given.shape[axis]
        if stop > last:
            column[(*before, slice(stop - last))].copy_(given[(*before, slice(last - slot, None))], non_blocking=True)
            given = given[(*before, slice(last - slot))]
        column[(*before, slice(slot, stop))].copy_(given, non_blocking=True)


def _write_on_host(rows: Batch, arrays: dict[str, Any], slot: int, axis: int) -> None:
    """Does the same in NumPy, which takes less time for a few rows."""
    for name, stored in arrays.items():
        given = rows[name].numpy()
        if axis:
            stored, given = stored.swapaxes(0, axis), given.swapaxes(0, axis)
        room = len(stored) - slot
        stored[slot : slot + len(given)] = given[:room]
        if len(given) > room:
            stored[: len(given) - room] = given[room:]


def n_step_returns(rewards: Tensor, ended: Tensor, gamma: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """n-step returns (Sutton, 1988) sum_k gamma^k r_k over windows [..., steps], up to the first step that ended."""
    # Also returns the last step counted and the discount of the next value. Later rewards are ignored, even NaN.
    # With a tensor `gamma`, each step of a window has its own discount.
    steps = rewards.shape[-1]
    if isinstance(gamma, Tensor):
        powers = torch.cat([torch.ones_like(gamma[..., :1]), gamma.cumprod(-1)], -1)
    else:
        powers = gamma ** torch.arange(steps + 1, device=rewards.device)
    after_end = ended.cumsum(-1) - ended.long() > 0
    last = steps - 1 - after_end.sum(-1)
    returns = (rewards * powers[..., :-1]).masked_fill(after_end, 0).sum(-1)
    if isinstance(gamma, Tensor):
        return returns, last, powers.gather(-1, last.unsqueeze(-1) + 1).squeeze(-1)
    return returns, last, powers.take(last + 1)
