"""Proportional prioritized sampling (Schaul et al., 2016): samples a block of slots by its sum, then a slot in it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

BLOCK = 128  # slots; balances reading all block sums against reading the sampled blocks, for 1M slots and batches of 64
SMALLEST = 1e-6  # added to every TD error, so that each transition can be sampled again
BELOW_ONE = 1 - 2**-50  # the margin is larger than the rounding error of the sums


class Priorities:
    """Priorities of a replay buffer's slots [rows] or [members, rows]; slots never set are not sampled."""

    def __init__(
        self, capacity: int, *, alpha: float = 0.6, members: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"priority_alpha must be in [0, 1], got {alpha}")
        self.alpha, self.capacity, blocks = alpha, capacity, -(-capacity // BLOCK)
        lead = () if members is None else (members,)
        self.values = torch.zeros(*lead, blocks, BLOCK, dtype=torch.float64, device=device)
        self.sums = torch.zeros(*lead, blocks, dtype=torch.float64, device=device)
        self.largest = torch.ones(lead, dtype=torch.float64, device=device)  # so far; given to new transitions
        self._first_blocks = None if members is None else torch.arange(members, device=device).unsqueeze(1) * blocks

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Stratified sampling: one slot from each of `shape[-1]` equal intervals of the total; and its probability."""
        # Nothing is read on the host, so that sampling can be captured.
        edges = self.sums.cumsum(-1)
        total = edges[..., -1:]
        kind: Any = {"dtype": torch.float64, "device": generator.device}
        strata = torch.rand(shape, generator=generator, **kind) + torch.arange(shape[-1], **kind)
        mass = strata * (total * (BELOW_ONE / shape[-1]))
        blocks = torch.searchsorted(edges, mass, right=True)
        positions = self._positions(blocks)
        mass -= (edges - self.sums).take(positions)  # sum of the blocks before
        values = self.values.view(-1, BLOCK).index_select(0, positions.flatten())
        edges = values.cumsum(-1)
        # Clamped, so that rounding selects no slot outside the block and none of priority 0.
        inside = torch.minimum(mass.clamp_(min=0).view(-1, 1), edges[:, -1:] * BELOW_ONE)
        slots = torch.searchsorted(edges, inside, right=True)
        return torch.add(slots.view(shape), blocks, alpha=BLOCK), values.gather(1, slots).view(shape) / total

    def set(self, slots: Tensor, errors: Tensor) -> None:
        """Sets priorities (|error| + 1e-6)^alpha; for a repeated slot the larger error counts."""
        # A NaN would break sampling. The loss is then NaN too, and stops the run.
        values = (errors.abs().nan_to_num().double() + SMALLEST) ** self.alpha
        torch.maximum(self.largest, values.flatten(self.largest.dim()).amax(-1), out=self.largest)
        self.put(slots, values)

    def renew(self, slots: Tensor) -> None:
        """Gives new transitions the largest priority so far, so that each is sampled soon."""
        slots = slots.expand(*self.largest.shape, -1)
        self.put(slots, self.largest.unsqueeze(-1).expand(slots.shape))

    def put(self, slots: Tensor, values: Tensor) -> None:
        """Writes priorities unchanged; slots of priority 0 are not sampled."""
        positions = self._positions(slots, BLOCK).flatten()
        # The maximum of duplicates, because their write order is undefined.
        self.values.view(-1).scatter_reduce_(0, positions, values.flatten(), "amax", include_self=False)
        blocks = positions // BLOCK  # their sums are recomputed, so that rounding errors do not accumulate
        self.sums.view(-1).index_copy_(0, blocks, self.values.view(-1, BLOCK).index_select(0, blocks).sum(-1))

    def member(self, index: int) -> Priorities:
        """One member's priorities, as views of the same memory."""
        one = copy.copy(self)
        one.values, one.sums, one.largest = self.values[index], self.sums[index], self.largest[index]
        one._first_blocks = None
        return one

    def state_dict(self, used: int) -> dict[str, Tensor]:
        """State of the first `used` slots. Sums are included: recomputed in another order, their last bits differ."""
        return {"values": self.values.flatten(-2)[..., :used], "sums": self.sums, "largest": self.largest}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        used = state["values"].shape[-1]
        if used > self.capacity or state["sums"].shape != self.sums.shape:
            raise ValueError(f"the saved priorities do not fit a replay buffer of {self.capacity:,} rows")
        self.values.zero_()
        for name, held in self.state_dict(used).items():
            held.copy_(state[name])

    def _positions(self, numbers: Tensor, width: int = 1) -> Tensor:
        """Flat index over all members, of blocks or of items with `width` a block."""
        return numbers if self._first_blocks is None else numbers + self._first_blocks * width
