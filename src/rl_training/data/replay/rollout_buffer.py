"""RolloutBuffer: one on-policy rollout; and generalized advantage estimation (Schulman et al., 2016)."""

import torch
from torch import Tensor

from rl_training.data.sampling import SeededSampler, gather
from rl_training.types import Batch


class RolloutBuffer(SeededSampler):
    """Appends steps [envs, ...], stacks them to [time, envs, ...] and serves shuffled minibatches.

    Rows are steps, or sequences of `steps_per_row` steps. Batch sizes count steps.

    The position in the permutation is kept on the host. On CUDA the rows keep their place in memory, so that a graph
    that was captured at a position can be replayed there for every rollout.
    """

    def __init__(self, device: torch.device | str = "cpu", *, steps_per_row: int = 1) -> None:
        super().__init__(device)
        self.steps_per_row = steps_per_row
        self.samples_on_device = self.generator.device.type == "cuda"
        self._flat: Batch = {}
        self._shuffled: Batch = {}
        self.clear()

    def clear(self) -> None:
        """Drops all steps."""
        self._steps: list[Batch] = []
        self._length = self.position = 0

    def __len__(self) -> int:
        return len(self._steps)

    def append(self, row: Batch) -> None:
        """Adds one step of every environment."""
        self._steps.append(row)

    def stack(self) -> Batch:
        """Returns the columns of all steps, [steps, ...]."""
        if not self._steps:
            raise ValueError("the rollout has no steps; call append first")
        return {name: torch.stack([step[name] for step in self._steps]) for name in self._steps[0]}

    def fill(self, flat: Batch) -> None:
        """Sets the rows [steps, ...] or [sequences, time, ...] that `sample` serves."""
        lengths = {name: len(column) for name, column in flat.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"all columns must have the same length, got {lengths}")
        self._length = self.position = next(iter(lengths.values()))  # nothing is left to serve, so `sample` shuffles
        if self.samples_on_device and _layout(flat) == _layout(self._flat):
            for name, column in flat.items():
                self._flat[name].copy_(column)
        else:
            self._flat = {name: column.clone() for name, column in flat.items()} if self.samples_on_device else flat
            self._shuffled = {name: torch.empty_like(column) for name, column in flat.items()}

    def skip(self, batches: int, batch_size: int) -> None:
        """Advances the position as `sample` does, without sampling."""
        rows = batch_size // self.steps_per_row
        for _ in range(batches):
            self.position = rows if self.position + rows > self._length else self.position + rows

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Returns the next minibatch of the current permutation; reshuffles after each epoch."""
        if members:
            raise ValueError(f"a rollout serves one learner, got members={members}")
        steps = self._length * self.steps_per_row
        if not steps or steps % batch_size or batch_size % self.steps_per_row:
            raise ValueError(f"batch_size must divide the {steps} rows of the rollout, got {batch_size}")
        count = batch_size // self.steps_per_row
        if self.position + count > self._length:
            self._shuffle()
        rows = slice(self.position, self.position + count)
        self.position += count
        return {name: column[rows] for name, column in self._shuffled.items()}

    def _shuffle(self) -> None:
        """Orders the rows anew; minibatches are then views."""
        if self.samples_on_device:
            order = torch.rand(self._length, generator=self.generator, device=self.generator.device).argsort()
            for name, column in gather(self._flat, order).items():
                self._shuffled[name].copy_(column)
        else:
            order = torch.randperm(self._length, generator=self.generator)
            self._shuffled = gather(self._flat, order)
        self.position = 0


def _layout(columns: Batch) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (column.shape, column.dtype) for name, column in columns.items()}


def generalized_advantages(
    rewards: Tensor, values: Tensor, next_values: Tensor, dones: Tensor, truncated: Tensor,
    *, gamma: float, gae_lambda: float,
) -> Tensor:  # fmt: skip
    """GAE over the leading time axis: A_t = delta_t + gamma * lambda * (1 - end_t) * A_{t+1}."""
    # delta_t = r_t + gamma * (1 - done_t) * V(s'_t) - V(s_t). A truncated step bootstraps, but ends the sum.
    deltas = rewards + gamma * (1 - dones) * next_values - values
    return decayed_sums(deltas, gamma * gae_lambda * (1 - torch.maximum(dones, truncated)))


def decayed_sums(steps: Tensor, decay: Tensor) -> Tensor:
    """sums[t] = steps[t] + decay[t] * sums[t + 1] over the leading time axis."""
    if steps.is_cuda:
        return _scanned(steps, decay)
    # On the host in NumPy, which is ten times faster than torch for many small additions.
    sums, decays = steps.cpu().numpy().copy(), decay.cpu().numpy()
    for t in range(len(sums) - 2, -1, -1):
        sums[t] += decays[t] * sums[t + 1]
    return torch.from_numpy(sums).to(steps.device)


def _scanned(steps: Tensor, decay: Tensor) -> Tensor:
    """The same sums in log2(time) steps, each twice as wide as the one before; reads no value on the host."""
    sums, decays, reach = steps.clone(), decay.clone(), 1
    while reach < len(sums):
        sums = torch.cat((sums[:-reach] + decays[:-reach] * sums[reach:], sums[-reach:]))
        decays = torch.cat((decays[:-reach] * decays[reach:], torch.zeros_like(decays[-reach:])))
        reach *= 2
    return sums
