"""FrameReplayBuffer: a replay buffer for frame stacks that stores each frame once, in an eighth of the memory."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import Layout
from rl_training.types import Batch, EnvSpec


class LastStep(NamedTuple):
    """The newest step, on the host."""

    ended: Tensor  # [..., environments]
    numbers: Tensor  # [..., environments, stack], the frames of next_obs
    stacks: Tensor  # next_obs


class FrameReplayBuffer(ReplayBuffer):
    """A ReplayBuffer for frame stacks: uint8 [frames, height, width], newest frame last.

    Transitions store frame numbers; the frames are in a `FrameStore` of the same capacity. Each step adds one frame,
    the first step of an episode two (its first frame is repeated to fill the stack). Transitions are therefore evicted
    slightly early, when their frames are overwritten. Frames are counted on the host, which then sends only new frames
    to the device; so `add` is fastest with tensors of the host.
    """

    writes_on_device = False  # the number of frames depends on the values

    def __init__(self, capacity: int, spec: EnvSpec, *, members: int | None = None, **options: Any) -> None:
        if len(spec.obs_shape) != 3 or spec.obs_dtype != "uint8":
            raise ValueError(
                "stacked_frames needs uint8 observations [frames, height, width], "
                f"got {spec.obs_dtype} of shape {spec.obs_shape}; set stacked_frames to false"
            )
        super().__init__(capacity, spec, members=members, **options)
        stack = spec.obs_shape[0]
        if capacity < (least := 2 * self.stride * (stack + 1)):
            raise ValueError(f"capacity must be at least {least} for stacks of {stack} frames, got {capacity}")
        device = self.generator.device
        self.frames = FrameStore(capacity, spec.obs_shape[1:], members=members, device=device)
        self._oldest = torch.zeros((), dtype=torch.int64, device=device)  # slot of the oldest transition
        self._first_frames = torch.zeros(self.columns["obs"].shape[:-1], dtype=torch.int64)  # of `obs`, on the host
        self._last: LastStep | None = None  # read from the columns where it is not known

    @staticmethod
    def layout(spec: EnvSpec) -> dict[str, Layout]:
        numbers = (spec.obs_shape[:1], torch.int64)
        return {**ReplayBuffer.layout(spec), "obs": numbers, "next_obs": numbers}

    @classmethod
    def row_bytes(cls, spec: EnvSpec, **options: Any) -> int:
        return super().row_bytes(spec, **options) + math.prod(spec.obs_shape[1:])  # a frame for each transition

    def parts(self) -> dict[str, Any]:
        return {**super().parts(), "frames": self.frames}

    def add(self, rows: Batch) -> None:
        """Adds one step of every environment."""
        if (count := rows["rewards"].shape[-1]) != self.stride:
            raise ValueError(f"add one step of {self.stride} environments at a time, got {count} rows")
        rows = {name: column.cpu() for name, column in rows.items()}
        obs, next_obs = self._store_frames(rows)
        slots = torch.arange(self.added, self.added + count) % self.capacity
        super().add({**rows, "obs": obs, "next_obs": next_obs})
        self._first_frames[..., slots] = obs[..., 0]
        self._last = LastStep(rows["dones"] + rows["truncated"] > 0, next_obs, rows["next_obs"].clone())
        self._evict_without_frames()

    def restore(self, rows: Batch, start: int, *, member: int | None = None) -> None:
        super().restore(rows, start, member=member)
        self._last = None

    def mark_boundary(self, *, member: int | None = None) -> None:
        super().mark_boundary(member=member)
        self._last = None

    def load_state_dict(self, state: dict[str, Any], *, member: int | None = None) -> None:
        super().load_state_dict(state, member=member)
        self._last = None

    def state_dict(self, *, member: int | None = None) -> dict[str, Any]:
        return {**super().state_dict(member=member), "gone": self.evicted}

    def _store_frames(self, rows: Batch) -> tuple[Tensor, Tensor]:
        """Stores new frames; returns the frame numbers of `obs` and `next_obs`, [..., environments, stack]."""
        last, obs, next_obs = self._last_step(), rows["obs"], rows["next_obs"]
        begins = last.ended if self.added else torch.ones_like(last.ended)  # flags of the first steps of episodes
        first = obs[..., -1:, :, :].expand_as(obs)
        # When a worker process dies, its episode is truncated with next_obs equal to obs.
        unchanged = (obs == next_obs).flatten(-3).all(-1)
        expected = torch.where(begins.view(*begins.shape, 1, 1, 1), first, last.stacks)
        is_shifted = (obs[..., 1:, :, :] == next_obs[..., :-1, :, :]).flatten(-3).all(-1) | unchanged
        if not (obs.equal(expected) and is_shifted.all()):
            raise ValueError(
                "observations are not frame stacks: each step must add one frame, and an episode must start with its "
                "first frame repeated; set stacked_frames to false"
            )
        count = self.frames.counts.unsqueeze(-1)
        firsts = count + begins.cumsum(-1) - 1  # valid where an episode begins
        newest = count + begins.sum(-1, keepdim=True) + torch.arange(self.stride)
        self.frames.put(firsts, obs[..., -1, :, :], begins)
        self.frames.put(newest, next_obs[..., -1, :, :], torch.ones_like(begins))
        self.frames.counts += begins.sum(-1) + self.stride
        numbers = torch.where(begins.unsqueeze(-1), firsts.unsqueeze(-1), last.numbers)
        shifted = torch.cat([numbers[..., 1:], newest.unsqueeze(-1)], -1)
        return numbers, torch.where(unchanged.unsqueeze(-1), numbers, shifted)

    def _last_step(self) -> LastStep:
        if self._last is None:
            self._first_frames.copy_(self.columns["obs"][..., 0])
            axis, slots = self.frames.counts.dim(), self._slots(self.added - self.stride, self.added)
            names = ("dones", "truncated", "next_obs")
            dones, truncated, numbers = (self.columns[name].index_select(axis, slots) for name in names)
            stacks = self.frames.stacks(numbers if self.added else torch.zeros_like(numbers))
            self._last = LastStep((dones + truncated > 0).cpu(), numbers.cpu(), stacks.cpu())
        return self._last

    def _evict_without_frames(self) -> None:
        """Evicts transitions whose frames were overwritten; frame numbers ascend, so the others are complete."""
        before, oldest = self.evicted, self.frames.counts - self.frames.capacity
        while self._oldest_frame(self.evicted).lt(oldest).any():
            self.evicted += self.stride
        if self.priorities is not None and self.evicted > before:
            slots = self._slots(before, self.evicted).expand(*self.frames.counts.shape, -1)
            self.priorities.put(slots, torch.zeros(slots.shape, dtype=torch.float64, device=slots.device))
        self._set_added(self.added)

    def _oldest_frame(self, start: int) -> Tensor:
        """Oldest frame number in the time step that begins at row `start`."""
        slots = torch.arange(start, start + self.stride) % self.capacity
        return self._first_frames[..., slots].amin(-1)

    def _uniform_slots(self, shape: tuple[int, ...]) -> Tensor:
        return (super()._uniform_slots(shape) + self._oldest) % self.capacity

    def _batch(self, slots: Tensor) -> Batch:
        batch = super()._batch(slots)
        return {**batch, **{name: self.frames.stacks(batch[name]) for name in ("obs", "next_obs")}}

    def _set_added(self, added: int) -> None:
        super()._set_added(added)
        self._oldest.fill_(self.evicted % self.capacity)


class FrameStore:
    """The newest frames of each member, numbered from the first ever added."""

    def __init__(self, capacity: int, shape: tuple[int, ...], *, members: int | None, device: torch.device) -> None:
        lead = () if members is None else (members,)
        self.capacity = capacity
        self.counts = torch.zeros(lead, dtype=torch.int64)  # frames ever added, on the host
        self.frames = torch.empty(*lead, capacity, *shape, dtype=torch.uint8, device=device)
        self._offsets = None if members is None else capacity * torch.arange(members, device=device)

    @property
    def added(self) -> int:
        return int(self.counts)

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def stacks(self, numbers: Tensor) -> Tensor:
        """Returns frames by number, [*numbers' shape, height, width]."""
        return self._flat().index_select(0, self._positions(numbers).flatten()).unflatten(0, numbers.shape)

    def put(self, numbers: Tensor, frames: Tensor, mask: Tensor) -> None:
        """Writes the frames [..., environments, height, width] of the host that `mask` selects."""
        if mask.any():
            slots = numbers % self.capacity
            if self.counts.dim():
                slots = slots + self.capacity * torch.arange(len(self.counts)).unsqueeze(-1)
            device = self.frames.device
            self._flat().index_copy_(0, slots[mask].to(device), frames[mask].to(device))

    def member(self, index: int) -> FrameStore:
        """One member's frames, as views of the same memory."""
        one = copy.copy(self)
        one.counts, one.frames, one._offsets = self.counts[index], self.frames[index], None
        return one

    def rows(self, start: int, stop: int) -> Batch:
        return {"frames": self.stacks(torch.arange(start, stop, device=self.frames.device))}

    def restore(self, rows: Batch, start: int) -> None:
        numbers = torch.arange(start, start + len(rows["frames"]), device=self.frames.device)[-self.capacity :]
        self._flat().index_copy_(0, numbers % self.capacity, rows["frames"].to(numbers.device)[-self.capacity :])
        self.counts.fill_(start + len(rows["frames"]))

    def _flat(self) -> Tensor:
        return self.frames.view(-1, *self.frames.shape[-2:])

    def _positions(self, numbers: Tensor) -> Tensor:
        slots = numbers % self.capacity
        return slots if self._offsets is None else slots + self._offsets.view(-1, *[1] * (numbers.dim() - 1))
