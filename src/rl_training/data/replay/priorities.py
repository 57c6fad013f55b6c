"""Draws in proportion to priorities (Schaul et al., 2016): first a block of slots by its sum, then a slot in it."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

BLOCK = 128  # slots; of a million, the sums of all blocks and the blocks of 64 draws are then equally much to read
SMALLEST = 1e-6  # added to every error, so that no row is lost for good
BELOW_ONE = 1 - 2**-50  # by more than rounding could make up for


class Priorities:
    """The priority of each slot of a ring, or of each of `members` rings; a slot that was never set is not drawn.

    Slots come as [rows] or [members, rows]. Nothing is read on the host. A block's sum is always made anew from its
    priorities, so that rounding cannot pile up.
    """

    def __init__(
        self, capacity: int, *, alpha: float = 0.6, members: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"priority_alpha must be in [0, 1], got {alpha}")
        self.alpha, blocks = alpha, -(-capacity // BLOCK)
        lead = () if members is None else (members,)
        self.values = torch.zeros(*lead, blocks, BLOCK, dtype=torch.float64, device=device)
        self.sums = torch.zeros(*lead, blocks, dtype=torch.float64, device=device)
        self.largest = torch.ones(lead, dtype=torch.float64, device=device)  # so far; what new rows get
        self._first_blocks = None if members is None else torch.arange(members, device=device).unsqueeze(1) * blocks

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Slots, one from each of `shape[-1]` equal slices of the whole, and the chance that a draw had of each."""
        edges = self.sums.cumsum(-1)
        total = edges[..., -1:]
        kind: Any = {"dtype": torch.float64, "device": generator.device}
        slices = torch.rand(shape, generator=generator, **kind) + torch.arange(shape[-1], **kind)
        left = slices * (total * (BELOW_ONE / shape[-1]))
        blocks = torch.searchsorted(edges, left, right=True)
        places = self._places(blocks)
        left -= (edges - self.sums).take(places)  # what the blocks before it hold
        values = self.values.view(-1, BLOCK).index_select(0, places.flatten())
        edges = values.cumsum(-1)
        # Rounding must lead neither before the first slot of the block that can be drawn nor past the last.
        inside = torch.minimum(left.clamp_(min=0).view(-1, 1), edges[:, -1:] * BELOW_ONE)
        slots = torch.searchsorted(edges, inside, right=True)
        return torch.add(slots.view(shape), blocks, alpha=BLOCK), values.gather(1, slots).view(shape) / total

    def set(self, slots: Tensor, errors: Tensor) -> None:
        """Rows that were this wrong; where a slot comes twice, its larger error counts."""
        # An error that is no number would end all drawing; it is the loss, no number either, that tells of it.
        values = (errors.abs().nan_to_num().double() + SMALLEST) ** self.alpha
        torch.maximum(self.largest, values.flatten(self.largest.dim()).amax(-1), out=self.largest)
        self.put(slots, values)

    def renew(self, slots: Tensor) -> None:
        """Slots that new rows of every member have taken: the largest so far, so that each is soon seen."""
        slots = slots.expand(*self.largest.shape, -1)
        self.put(slots, self.largest.unsqueeze(-1).expand(slots.shape))

    def put(self, slots: Tensor, values: Tensor) -> None:
        """Priorities as they are; one of 0 is not drawn."""
        places = self._places(slots, BLOCK).flatten()
        # The larger of two, since the later of two is not defined.
        self.values.view(-1).scatter_reduce_(0, places, values.flatten(), "amax", include_self=False)
        blocks = places // BLOCK
        self.sums.view(-1).index_copy_(0, blocks, self.values.view(-1, BLOCK).index_select(0, blocks).sum(-1))

    def member(self, index: int) -> Priorities:
        """One member's, as if it were alone; they rest where they are."""
        one = copy.copy(self)
        one.values, one.sums, one.largest = self.values[index], self.sums[index], self.largest[index]
        one._first_blocks = None
        return one

    def state_dict(self, used: int) -> dict[str, Tensor]:
        """Of the first `used` slots. Sums come along: made in another order, they would not have the same last bits."""
        return {"values": self.values.flatten(-2)[..., :used], "sums": self.sums, "largest": self.largest}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.values.zero_()
        for name, held in self.state_dict(state["values"].shape[-1]).items():
            held.copy_(state[name])

    def _places(self, numbers: Tensor, width: int = 1) -> Tensor:
        """Numbers of blocks, or of what a block has `width` of, counted through all members."""
        return numbers if self._first_blocks is None else numbers + self._first_blocks * width
