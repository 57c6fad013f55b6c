"""RecurrentReplayBuffer: what each environment has shown, in order, handed out as windows to learners that remember."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.data.replay.replay_buffer import LARGE, ReplayBuffer
from rl_training.data.sampling import Layout, PackedColumns, SeededSampler, gather
from rl_training.types import Batch, EnvSpec


class RecurrentReplayBuffer(SeededSampler):
    """Rings of records, one ring an environment: an observation, the reward that came with it, the action after it.

    Transitions go in. Each becomes a record; where an episode ends, its last observation becomes one more, `is_last`,
    with an action of zeros, and `dones` if it is terminal. So records are one more than steps for each episode, and
    environments have different numbers of them. `latents` are what a learner remembers at a record, by shape and
    dtype: they come in with a step, come out with the window that follows it, and can be replaced (`write_back`).

    Windows may cross episodes, never the newest record. Those that begin at every `window`-th record of an environment
    are handed out once before all others, as soon as they are whole; the rest are drawn evenly.
    """

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        *,
        num_envs: int = 1,
        window: int = 64,
        obs_dtype: torch.dtype | None = None,
        latents: Mapping[str, Layout] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value in {"num_envs": num_envs, "window": window}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        least = num_envs * (window + 2)  # what comes before a window, and a record more at an episode's end
        if capacity < least:
            raise ValueError(
                f"capacity must be at least {least}, for windows of {window} in {num_envs} environments, got {capacity}"
            )
        super().__init__(device)
        self.capacity, self.num_envs, self.window = capacity // num_envs, num_envs, window  # records of one ring
        lead = (num_envs, self.capacity)
        self.columns = PackedColumns(lead, _record_layout(spec, obs_dtype), device)
        self.latents = {name: torch.zeros(*lead, *shape, dtype=dtype, device=device)
                        for name, (shape, dtype) in (latents or {}).items()}  # fmt: skip
        self.counts = [0] * num_envs  # records ever added, on the host and on the device
        self._added = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._arrived = torch.zeros(num_envs, device=device)  # rewards that came with what is acted on next
        self._begins = torch.ones(num_envs, device=device)  # whether that is an episode's first observation
        # Fresh windows, by environment and first record: as many as can be alive, in a ring of their own.
        self._queue = torch.zeros(capacity // window + num_envs, 2, dtype=torch.int64, device=device)
        self._queued, self._served = self._queue.new_zeros(()), self._queue.new_zeros(())  # how many ever were
        self._steps = torch.arange(window, device=device)

    def __len__(self) -> int:
        return sum(min(count, self.capacity) for count in self.counts)

    @property
    def num_windows(self) -> int:
        """How many there are to draw from."""
        oldest = [self._first(count) for count in self.counts]
        whole = [count - first - self.window + 1 for count, first in zip(self.counts, oldest, strict=True)]
        return sum(max(windows, 0) for windows in whole)

    def add(self, rows: Batch) -> None:
        """One step of every environment, and the latents it was taken by; the oldest records make room."""
        self._check(rows)
        ended = rows["dones"] + rows["truncated"] > 0
        none = torch.zeros_like(self._arrived)
        latents = {name: rows[name] for name in self.latents}
        chosen = {"obs": rows["obs"], "actions": rows["actions"], "rewards": self._arrived, "is_first": self._begins}
        self._write(range(self.num_envs), {**chosen, "is_last": none, "dones": none, **latents})
        over = ended.nonzero().squeeze(1)
        if len(over):
            last = {"obs": rows["next_obs"], "rewards": rows["rewards"], "dones": rows["dones"], "is_last": none + 1}
            nothing = {name: torch.zeros_like(rows[name]) for name in ("actions", *self.latents)}
            records = {**last, **nothing, "is_first": none}
            self._write(over.tolist(), {name: column[over] for name, column in records.items()})
        self._added.copy_(torch.tensor(self.counts))
        self._arrived, self._begins = torch.where(ended, none, rows["rewards"]), ended.float()

    def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
        """Windows [batch_size, window], with the `rows` they rest in, and the latents before each as `start_…`."""
        if members:
            raise ValueError(f"sequences are for one learner at a time, got members {members}")
        if not self.num_windows:
            raise ValueError(f"no environment has shown {self.window} records yet, so there is no window to sample")
        envs, starts = self._draw(batch_size)
        rows = self._rows(envs.unsqueeze(1), starts.unsqueeze(1) + self._steps)
        before = self._rows(envs, starts - 1)
        batch = {**gather(self.columns, rows), "rows": rows}
        for name, held in self.latents.items():
            batch[f"start_{name}"] = held.flatten(0, 1).index_select(0, before)
        if not self.latents:  # what came before is not known
            batch["is_first"][:, 0] = 1
        return {**batch, "previous_actions": self._previous(batch, before)}

    def write_back(self, rows: Tensor, latents: Batch) -> None:
        """What a learner remembers at these rows by now; before records are added, which may take their places."""
        if latents.keys() != self.latents.keys():
            raise ValueError(f"latents must be {sorted(self.latents)}, got {sorted(latents)}")
        for name, held in self.latents.items():
            # Where windows overlap, the last one counts; all of them are true.
            held.flatten(0, 1).index_copy_(0, rows.flatten(), latents[name].flatten(0, 1).to(held.dtype))

    def parts(self) -> dict[str, Any]:
        """What must be saved record by record, by name."""
        return {f"replay{env}": EnvReplay(self, env) for env in range(self.num_envs)}

    def mark_boundary(self) -> None:
        """What is added next does not go on from the newest records: each ends its episode."""
        for env, count in enumerate(self.counts):
            if count:
                self.columns["is_last"][env, (count - 1) % self.capacity] = 1
        self._arrived, self._begins = torch.zeros_like(self._arrived), torch.ones_like(self._begins)

    def state_dict(self) -> dict[str, Any]:
        """All but the records, which are read and put back by their rings; latents change, and are saved whole."""
        used = min(max(self.counts), self.capacity)
        return {
            **super().state_dict(), "counts": list(self.counts), "arrived": self._arrived, "begins": self._begins,
            "queue": self._queue, "queued": self._queued, "served": self._served,
            "latents": {name: held[:, :used] for name, held in self.latents.items()},
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["latents"].keys() != self.latents.keys():
            kept, keeps = (", ".join(sorted(each)) or "none" for each in (state["latents"], self.latents))
            raise ValueError(
                f"the replay was saved with latents: {kept}, and keeps: {keeps}; set stored_latents as it was then"
            )
        super().load_state_dict(state)
        self.counts = list(state["counts"])
        self._added.copy_(torch.tensor(self.counts))
        held = self.state_dict()
        for name in ("arrived", "begins", "queue", "queued", "served"):
            held[name].copy_(state[name])
        for name, values in held["latents"].items():
            values.copy_(state["latents"][name])

    def _draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Environments and first records: of fresh windows, and when there are no more, of any with equal chance."""
        oldest = (self._added - self.capacity).clamp(min=0)
        first = oldest + (oldest > 0)  # the oldest record has none before it
        sizes = (self._added - first - self.window + 1).clamp(min=0)
        edges = sizes.cumsum(0)
        draws = torch.randint(LARGE, (count,), generator=self.generator, device=self.generator.device) % edges[-1]
        envs = torch.searchsorted(edges, draws, right=True)
        starts = draws - (edges - sizes)[envs] + first[envs]
        numbers = torch.arange(count, device=draws.device)
        fresh_envs, fresh_starts = self._queue[(self._served + numbers) % len(self._queue)].unbind(1)
        waiting = self._queued - self._served
        is_fresh = (numbers < waiting) & (fresh_starts >= first[fresh_envs])
        self._served += waiting.clamp(max=count)
        return torch.where(is_fresh, fresh_envs, envs), torch.where(is_fresh, fresh_starts, starts)

    def _previous(self, batch: Batch, before: Tensor) -> Tensor:
        """The action before each record, which was another episode's and is zeros where one begins."""
        actions = batch["actions"]
        earlier = self.columns["actions"].flatten(0, 1).index_select(0, before)
        shifted = torch.cat([earlier.unsqueeze(1), actions[:, :-1]], 1)
        is_first = batch["is_first"].bool().view(*actions.shape[:2], *[1] * (actions.dim() - 2))
        return shifted.masked_fill(is_first, 0)

    def _write(self, envs: Sequence[int], records: Batch) -> None:
        """A record in each of these environments."""
        device = self.generator.device
        slots = torch.tensor([self.counts[env] % self.capacity for env in envs], device=device)
        places = torch.tensor(list(envs), device=device), slots
        for name, column in {**self.columns, **self.latents}.items():
            column[places] = records[name].to(column.dtype)
        for env in envs:
            self.counts[env] += 1
            if self.counts[env] % self.window == 0:
                self._enqueue(env, self.counts[env] - self.window)

    def _enqueue(self, env: int, start: int) -> None:
        self._queue[self._queued % len(self._queue)] = torch.tensor([env, start], device=self._queue.device)
        self._queued += 1
        self._served.clamp_(min=self._queued - len(self._queue))

    def _rows(self, envs: Tensor, numbers: Tensor) -> Tensor:
        """Where records rest, counted through all rings."""
        return envs * self.capacity + numbers % self.capacity

    def _first(self, count: int) -> int:
        """The first record of a ring that a window may begin with: the oldest one there has none before it."""
        return count - self.capacity + 1 if count > self.capacity else 0

    def _check(self, rows: Batch) -> None:
        obs, actions = (self.columns[name].shape[2:] for name in ("obs", "actions"))
        single = {"obs": obs, "actions": actions, "rewards": (), "next_obs": obs, "dones": (), "truncated": ()}
        single |= {name: held.shape[2:] for name, held in self.latents.items()}
        expected = {name: (self.num_envs, *shape) for name, shape in single.items()}
        shapes = {name: tuple(column.shape) for name, column in rows.items()}
        if shapes != expected:
            raise ValueError(f"rows must have the columns and shapes {expected}, got {shapes}")


class EnvReplay:
    """The records of one environment: what saving and restoring them needs."""

    def __init__(self, rings: RecurrentReplayBuffer, env: int) -> None:
        self.rings, self.env = rings, env

    @property
    def added(self) -> int:
        return self.rings.counts[self.env]

    def __len__(self) -> int:
        return min(self.added, self.rings.capacity)

    def rows(self, start: int, stop: int) -> Batch:
        return {name: column[self.env, self._slots(start, stop)] for name, column in self.rings.columns.items()}

    def restore(self, rows: Batch, start: int) -> None:
        stop = start + len(rows["rewards"])
        first = max(start, stop - self.rings.capacity)
        slots = self._slots(first, stop)
        for name, column in self.rings.columns.items():
            column[self.env, slots] = rows[name][first - start :].to(column.device)
        self.rings.counts[self.env] = stop

    def _slots(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.rings.generator.device) % self.rings.capacity


def _record_layout(spec: EnvSpec, obs_dtype: torch.dtype | None) -> dict[str, Layout]:
    layout = ReplayBuffer.layout(spec)
    shape, dtype = layout["obs"]
    flags: dict[str, Layout] = dict.fromkeys(("rewards", "is_first", "is_last", "dones"), ((), torch.float32))
    return {"obs": (shape, obs_dtype or dtype), "actions": layout["actions"], **flags}
