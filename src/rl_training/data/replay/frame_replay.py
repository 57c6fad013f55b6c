"""FrameReplayBuffer: a replay buffer for frame stacks that stores each frame once, in an eighth of the memory."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import Layout
from rl_training.types import Array, Batch, EnvSpec


class LastStep(NamedTuple):
    """The newest step, on the host."""

    ended: Array  # [..., environments]
    numbers: Array  # [..., environments, stack], the frames of next_obs
    stacks: Array  # next_obs


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
        self._first_frames = np.zeros(self.columns["obs"].shape[:-1], np.int64)  # of `obs`, on the host
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
        arrays = {name: column.cpu().numpy() for name, column in rows.items()}
        obs, next_obs = self._store_frames(arrays["obs"], arrays["next_obs"])
        slots = np.arange(self.added, self.added + count) % self.capacity
        super().add({**rows, "obs": torch.from_numpy(obs), "next_obs": torch.from_numpy(next_obs)})
        self._first_frames[..., slots] = obs[..., 0]
        self._evict_without_frames()
        self._last = LastStep(arrays["dones"] + arrays["truncated"] > 0, next_obs, arrays["next_obs"].copy())

    def mark_boundary(self, *, member: int | None = None) -> None:
        super().mark_boundary(member=member)
        self._last = None

    def state_dict(self, *, member: int | None = None) -> dict[str, Any]:
        return {**super().state_dict(member=member), "gone": self.evicted}

    def _store_frames(self, obs: Array, next_obs: Array) -> tuple[Array, Array]:
        """Stores new frames; returns the frame numbers of `obs` and `next_obs`, [..., environments, stack]."""
        last = self._last_step()
        begins = last.ended if self.added else np.ones_like(last.ended)  # flags of the first steps of episodes
        # When a worker process dies, its episode is truncated with next_obs equal to obs.
        unchanged, shifted = _equal(obs, next_obs), _equal(obs[..., 1:, :, :], next_obs[..., :-1, :, :])
        follows = _equal(obs, last.stacks)
        if begins.any():
            repeated = np.broadcast_to(obs[..., -1:, :, :], obs.shape)
            follows = np.where(begins, _equal(obs, repeated), follows)
        if not (follows.all() and (shifted | unchanged).all()):
            raise ValueError(
                "observations are not frame stacks: each step must add one frame, and an episode must start with its "
                "first frame repeated; set stacked_frames to false"
            )
        firsts, newest = self.frames.add(obs[..., -1, :, :], next_obs[..., -1, :, :], begins)
        numbers = np.where(begins[..., None], firsts[..., None], last.numbers)
        following = np.concatenate([numbers[..., 1:], newest[..., None]], -1)
        return numbers, np.where(unchanged[..., None], numbers, following)

    def _last_step(self) -> LastStep:
        if self._last is None:
            self._first_frames[:] = self.columns["obs"][..., 0].cpu().numpy()
            axis, slots = self.frames.counts.dim(), self._slots(self.added - self.stride, self.added)
            names = ("dones", "truncated", "next_obs")
            dones, truncated, numbers = (self.columns[name].index_select(axis, slots) for name in names)
            stacks = self.frames.stacks(numbers if self.added else torch.zeros_like(numbers))
            self._last = LastStep(*(each.cpu().numpy() for each in (dones + truncated > 0, numbers, stacks)))
        return self._last

    def _evict_without_frames(self) -> None:
        """Evicts transitions whose frames were overwritten; frame numbers ascend, so the others are complete."""
        before, oldest = self.evicted, self.frames.counts.numpy() - self.frames.capacity
        while (self._oldest_frame(self.evicted) < oldest).any():
            self.evicted += self.stride
        if self.evicted == before:
            return
        if self.priorities is not None:
            slots = self._slots(before, self.evicted).expand(*self.frames.counts.shape, -1)
            self.priorities.put(slots, torch.zeros(slots.shape, dtype=torch.float64, device=slots.device))
        self._set_added(self.added)

    def _oldest_frame(self, start: int) -> Array:
        """Oldest frame number in the time step that begins at row `start`."""
        slots = np.arange(start, start + self.stride) % self.capacity
        return self._first_frames[..., slots].min(-1)

    def _uniform_slots(self, shape: tuple[int, ...]) -> Tensor:
        return (super()._uniform_slots(shape) + self._oldest) % self.capacity

    def _batch(self, slots: Tensor) -> Batch:
        batch = super()._batch(slots)
        return {**batch, **{name: self.frames.stacks(batch[name]) for name in ("obs", "next_obs")}}

    def _set_added(self, added: int) -> None:
        super()._set_added(added)
        self._oldest.fill_(self.evicted % self.capacity)
        self._last = None


def _equal(first: Array, second: Array) -> Array:
    """Whether the stacks [..., frames, height, width] are equal, [...]."""
    shape = first.shape[:-3]
    rows = [each.reshape(math.prod(shape), *each.shape[-3:]) for each in (first, second)]
    # A comparison of bytes takes a tenth of the time of one by NumPy.
    equal = [one.tobytes() == other.tobytes() for one, other in zip(*rows, strict=True)]
    return np.array(equal).reshape(shape)


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

    def add(self, first: Array, newest: Array, begins: Array) -> tuple[Array, Array]:
        """Adds the first frames of episodes that begin and one frame of every environment; returns their numbers."""
        counts = self.counts.numpy()[..., None]
        firsts = counts + begins.cumsum(-1) - 1  # valid where an episode begins
        numbers = counts + begins.sum(-1, keepdims=True) + np.arange(begins.shape[-1])
        if begins.any():
            self._put(firsts[begins], first[begins], np.nonzero(begins)[0])
        self._put(numbers.ravel(), newest.reshape(-1, *newest.shape[-2:]), np.nonzero(np.ones_like(begins))[0])
        self.counts += torch.from_numpy(np.asarray(begins.sum(-1) + begins.shape[-1]))
        return firsts, numbers

    def _put(self, numbers: Array, frames: Array, members: Array) -> None:
        slots = numbers % self.capacity + (self.capacity * members if self.counts.dim() else 0)
        sent = (torch.from_numpy(each).to(self.frames.device, non_blocking=True) for each in (slots, frames))
        self._flat().index_copy_(0, *sent)

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
