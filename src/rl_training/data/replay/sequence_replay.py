"""RecurrentReplayBuffer: sequences of each environment, sampled as windows for recurrent learners."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import LARGE, ReplayBuffer, require_shapes
from rl_training.data.sampling import Layout, PackedColumns, SeededSampler, gather, row_bytes
from rl_training.types import Batch, EnvSpec


class RecurrentReplayBuffer(SeededSampler):
    """One replay buffer of records per environment: an observation, the reward received with it, the next action.

    - `add` takes transitions. Each becomes a record. The last observation of an episode becomes one more record with
      `is_last`, zero action, and `dones` if it is terminal. Environments therefore hold different numbers of records.
    - `latents` (shape and dtype by name) are the learner's recurrent states. They are added with each step, sampled
      with the window that follows, and updated by `write_back`.
    - Windows may cross episodes. New windows, one per `window` records, are served once before all others; the rest
      of a batch is sampled uniformly.
    """

    def __init__(
        self, capacity: int, spec: EnvSpec, *, num_envs: int = 1, window: int = 64,
        obs_dtype: torch.dtype | None = None, latents: Mapping[str, Layout] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        for name, value in {"num_envs": num_envs, "window": window}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        least = num_envs * (window + 2)  # one record before the window, and an extra one at the end of an episode
        if capacity < least:
            windows = f"windows of {window} in {num_envs} environments"
            raise ValueError(f"capacity must be at least {least} for {windows}, got {capacity}")
        super().__init__(device)
        self.capacity, self.num_envs, self.window = capacity // num_envs, num_envs, window  # capacity per environment
        lead = (num_envs, self.capacity)
        self.columns = PackedColumns(lead, _record_layout(spec, obs_dtype), device)
        self.latents = {name: torch.zeros(*lead, *shape, dtype=dtype, device=device)
                        for name, (shape, dtype) in (latents or {}).items()}  # fmt: skip
        self.counts = [0] * num_envs  # records ever added, on the host; `_added` on the device
        self._added = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._rewards = torch.zeros(num_envs, device=device)  # received with the current observation
        self._begins = torch.ones(num_envs, device=device)  # whether it is the first of an episode
        # Circular queue of new windows: environment and first record.
        self._queue = torch.zeros(capacity // window + num_envs, 2, dtype=torch.int64, device=device)
        self._queued, self._served = self._queue.new_zeros(()), self._queue.new_zeros(())  # total counts
        self._steps = torch.arange(window, device=device)

    @staticmethod
    def row_bytes(spec: EnvSpec, latents: Mapping[str, Layout] | None = None) -> int:
        """Returns the bytes that one record takes."""
        return row_bytes(_record_layout(spec, None)) + row_bytes(latents or {})

    def __len__(self) -> int:
        return sum(min(count, self.capacity) for count in self.counts)

    @property
    def num_windows(self) -> int:
        # The oldest record is excluded once records were overwritten: the record before it is lost.
        firsts = [count - self.capacity + 1 if count > self.capacity else 0 for count in self.counts]
        return sum(max(count - first - self.window + 1, 0) for count, first in zip(self.counts, firsts, strict=True))

    def add(self, rows: Batch) -> None:
        """Adds one step of every environment, with the latents of its observation."""
        self._check(rows)
        ended = rows["dones"] + rows["truncated"] > 0
        zeros = torch.zeros_like(self._rewards)
        latents = {name: rows[name] for name in self.latents}
        step = {"obs": rows["obs"], "actions": rows["actions"], "rewards": self._rewards, "is_first": self._begins}
        self._write(range(self.num_envs), {**step, "is_last": zeros, "dones": zeros, **latents})
        envs = ended.nonzero().squeeze(1)
        if len(envs):
            last = {"obs": rows["next_obs"], "rewards": rows["rewards"], "dones": rows["dones"], "is_last": zeros + 1}
            blank = {name: torch.zeros_like(rows[name]) for name in ("actions", *self.latents)}
            records = {**last, **blank, "is_first": zeros}
            self._write(envs.tolist(), {name: column[envs] for name, column in records.items()})
        self._added.copy_(torch.tensor(self.counts))
        self._rewards, self._begins = torch.where(ended, zeros, rows["rewards"]), ended.float()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Samples windows [batch_size, window], with their `rows` and the latents before each as `start_…`."""
        if members:
            raise ValueError(f"a sequence replay buffer serves one learner, got members={members}")
        if not self.num_windows:
            raise ValueError(f"cannot sample a window: no environment has {self.window} records yet")
        envs, starts = self._sample_starts(batch_size)
        rows = self._rows(envs.unsqueeze(1), starts.unsqueeze(1) + self._steps)
        before = self._rows(envs, starts - 1)
        batch = {**gather(self.columns, rows), "rows": rows}
        for name, stored in self.latents.items():
            batch[f"start_{name}"] = stored.flatten(0, 1).index_select(0, before)
        if not self.latents:  # the recurrent state before the window is unknown
            batch["is_first"][:, 0] = 1
        return {**batch, "previous_actions": self._previous(batch, before)}

    def write_back(self, rows: Tensor, latents: Batch) -> None:
        """Replaces the latents of these rows; call it before `add`, which may overwrite the rows."""
        if latents.keys() != self.latents.keys():
            raise ValueError(f"latents must be {sorted(self.latents)}, got {sorted(latents)}")
        for name, stored in self.latents.items():
            # Overlapping windows write a row twice; either value is valid.
            stored.flatten(0, 1).index_copy_(0, rows.flatten(), latents[name].flatten(0, 1).to(stored.dtype))

    def parts(self) -> dict[str, Any]:
        """Row stores to save in checkpoints, by name."""
        return {f"replay{env}": EnvReplay(self, env) for env in range(self.num_envs)}

    def mark_boundary(self) -> None:
        """Marks the newest record of each environment as the last of its episode."""
        for env, count in enumerate(self.counts):
            if count:
                self.columns["is_last"][env, (count - 1) % self.capacity] = 1
        self._rewards, self._begins = torch.zeros_like(self._rewards), torch.ones_like(self._begins)

    def state_dict(self) -> dict[str, Any]:
        """Everything except the records, which `parts` saves. Latents change at every update and are saved whole."""
        used = min(max(self.counts), self.capacity)
        return {
            **super().state_dict(), "counts": list(self.counts), "arrived": self._rewards, "begins": self._begins,
            "queue": self._queue, "queued": self._queued, "served": self._served,
            "latents": {name: stored[:, :used] for name, stored in self.latents.items()},
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["latents"].keys() != self.latents.keys():
            saved, expected = (", ".join(sorted(names)) or "none" for names in (state["latents"], self.latents))
            raise ValueError(
                f"the replay buffer was saved with latents {saved}, this one has {expected}; "
                "set stored_latents as in the saved run"
            )
        super().load_state_dict(state)
        self.counts = list(state["counts"])
        self._added.copy_(torch.tensor(self.counts))
        current = self.state_dict()
        for name in ("arrived", "begins", "queue", "queued", "served"):
            current[name].copy_(state[name])
        for name, values in current["latents"].items():
            values.copy_(state["latents"][name])

    def _sample_starts(self, count: int) -> tuple[Tensor, Tensor]:
        """Environments and first records: new windows first, the rest uniform over all windows."""
        oldest = (self._added - self.capacity).clamp(min=0)
        first = oldest + (oldest > 0)  # the record before the oldest is lost
        sizes = (self._added - first - self.window + 1).clamp(min=0)
        edges = sizes.cumsum(0)
        draws = torch.randint(LARGE, (count,), generator=self.generator, device=self.generator.device) % edges[-1]
        envs = torch.searchsorted(edges, draws, right=True)
        starts = draws - (edges - sizes)[envs] + first[envs]
        numbers = torch.arange(count, device=draws.device)
        fresh_envs, fresh_starts = self._queue[(self._served + numbers) % len(self._queue)].unbind(1)
        unserved = self._queued - self._served
        is_fresh = (numbers < unserved) & (fresh_starts >= first[fresh_envs])
        self._served += unserved.clamp(max=count)
        return torch.where(is_fresh, fresh_envs, envs), torch.where(is_fresh, fresh_starts, starts)

    def _previous(self, batch: Batch, before: Tensor) -> Tensor:
        """The action before each record; zeros at the first record of an episode."""
        actions = batch["actions"]
        earlier = self.columns["actions"].flatten(0, 1).index_select(0, before)
        shifted = torch.cat([earlier.unsqueeze(1), actions[:, :-1]], 1)
        is_first = batch["is_first"].bool().view(*actions.shape[:2], *[1] * (actions.dim() - 2))
        return shifted.masked_fill(is_first, 0)

    def _write(self, envs: Sequence[int], records: Batch) -> None:
        device = self.generator.device
        slots = torch.tensor([self.counts[env] % self.capacity for env in envs], device=device)
        places = torch.tensor(list(envs), device=device), slots
        for name, column in {**self.columns, **self.latents}.items():
            column[places] = records[name].to(column.dtype)
        for env in envs:
            self.counts[env] += 1
            if self.counts[env] % self.window == 0:
                new = torch.tensor([env, self.counts[env] - self.window], device=device)
                self._queue[self._queued % len(self._queue)] = new
                self._queued += 1
                self._served.clamp_(min=self._queued - len(self._queue))

    def _rows(self, envs: Tensor, numbers: Tensor) -> Tensor:
        """Flat index of records over all environments."""
        return envs * self.capacity + numbers % self.capacity

    def _check(self, rows: Batch) -> None:
        obs, actions = (self.columns[name].shape[2:] for name in ("obs", "actions"))
        single = {"obs": obs, "actions": actions, "rewards": (), "next_obs": obs, "dones": (), "truncated": ()}
        single |= {name: stored.shape[2:] for name, stored in self.latents.items()}
        require_shapes(rows, {name: (self.num_envs, *shape) for name, shape in single.items()})


class EnvReplay:
    """Saves and restores the records of one environment."""

    def __init__(self, replay: RecurrentReplayBuffer, env: int) -> None:
        self.replay, self.env = replay, env

    @property
    def added(self) -> int:
        return self.replay.counts[self.env]

    def __len__(self) -> int:
        return min(self.added, self.replay.capacity)

    def rows(self, start: int, stop: int) -> Batch:
        return {name: column[self.env, self._slots(start, stop)] for name, column in self.replay.columns.items()}

    def restore(self, rows: Batch, start: int) -> None:
        stop = start + len(rows["rewards"])
        first = max(start, stop - self.replay.capacity)
        slots = self._slots(first, stop)
        for name, column in self.replay.columns.items():
            column[self.env, slots] = rows[name][first - start :].to(column.device)
        self.replay.counts[self.env] = stop

    def _slots(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.replay.generator.device) % self.replay.capacity


def _record_layout(spec: EnvSpec, obs_dtype: torch.dtype | None) -> dict[str, Layout]:
    layout = ReplayBuffer.layout(spec)
    shape, dtype = layout["obs"]
    flags: dict[str, Layout] = dict.fromkeys(("rewards", "is_first", "is_last", "dones"), ((), torch.float32))
    return {"obs": (shape, obs_dtype or dtype), "actions": layout["actions"], **flags}
