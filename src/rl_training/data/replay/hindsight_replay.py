"""HindsightReplayBuffer: hindsight experience replay (HER, Andrychowicz et al., 2017, arXiv:1707.01495)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.data.replay.goals import GoalColumns, GoalStore
from rl_training.data.replay.replay_buffer import ReplayBuffer
from rl_training.data.sampling import row_bytes
from rl_training.types import Array, Batch, EnvSpec

# (achieved goals, other goals, terminal flags under the goals of the episodes) -> (rewards, terminal flags)
Outcomes: TypeAlias = "Callable[[Array, Array, Array], tuple[Array, Array]]"


class Step(NamedTuple):
    """Achieved goals after one step, and its terminal flags; [members, environments, ...] on the host."""

    achieved: Array
    dones: Array


class HindsightReplayBuffer(ReplayBuffer):
    """A ReplayBuffer that also samples transitions under goals that their episode achieved.

    When an episode ends, each of its transitions gets `goals` other goals, as in Algorithm 1 of the paper, with the
    rewards and terminal flags of `outcomes`. A sampled transition has the goal of its episode with probability
    1 / (1 + goals), and one of the others otherwise. Transitions of running episodes keep their goal.

    Relabelling on the host, once per episode, takes any `compute_reward`. Sampling reads tensors of the device only.
    """

    writes_on_device = False  # goals are sampled on the host

    def __init__(
        self, capacity: int, spec: EnvSpec, *, outcomes: Outcomes, strategy: str = "future", goals: int = 4,
        goal_seed: int = 0, members: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(capacity, spec, members=members, **options)
        if self.n_step > 1:
            raise ValueError(f"n-step returns mix the rewards of several goals; n_step must be 1, got {self.n_step}")
        self.places, self.outcomes, self.strategy, self.num_goals = GoalColumns(spec), outcomes, strategy, goals
        self.goal_seed = goal_seed
        self.goals = GoalStore(capacity, self.places, goals, members=members, device=self.generator.device)
        self.starts = np.zeros((members or 1, self.stride), np.int64)  # first step of each running episode
        self._recent: list[Step] | None = []  # the newest ones; None: to be read from the columns

    @classmethod
    def row_bytes(cls, spec: EnvSpec, *, goals: int = 4, **options: Any) -> int:
        return super().row_bytes(spec, **options) + row_bytes(GoalStore.layout(GoalColumns(spec), goals))

    @property
    def steps(self) -> int:
        """Steps of every environment that were ever added."""
        return self.added // self.stride

    def parts(self) -> dict[str, Any]:
        return {**super().parts(), "goals": FinishedGoals(self)}

    def add(self, rows: Batch) -> None:
        """Adds one step of every environment."""
        if (count := rows["rewards"].shape[-1]) != self.stride:
            raise ValueError(f"add one step of {self.stride} environments at a time, got {count} rows")
        steps = self._running_steps()
        super().add(rows)
        next_obs, dones, truncated = (self._on_host(rows[name]) for name in ("next_obs", "dones", "truncated"))
        steps.append(Step(self.places.achieved(next_obs).copy(), dones.copy()))
        for member, env in np.argwhere(dones + truncated > 0).tolist():
            self._relabel(member, env, steps)
            self.starts[member, env] = self.steps
        del steps[: len(steps) - (self.steps - self._first_needed())]

    def _relabel(self, member: int, env: int, steps: list[Step]) -> None:
        """Writes other goals for the transitions of the episode that ends with the newest step."""
        first = max(int(self.starts[member, env]), self.steps - len(steps))
        episode = steps[first - self.steps :]
        achieved, dones = (np.stack([each[member, env] for each in column]) for column in zip(*episode, strict=True))
        numbers = np.arange(first, self.steps) * self.stride + env
        rng = np.random.default_rng(streams.derive(self.goal_seed, member, int(numbers[0])))
        goals = achieved[chosen_steps(self.strategy, len(achieved), self.num_goals, rng)]
        repeated = np.repeat(achieved, self.num_goals, 0), goals.reshape(-1, goals.shape[-1])
        outcomes = self.outcomes(*repeated, np.repeat(dones, self.num_goals))
        rewards, terminal = (torch.from_numpy(each).view(-1, self.num_goals) for each in outcomes)
        stored = int((numbers < self.evicted).sum())  # the oldest may have been evicted
        rows = {"goals": torch.from_numpy(goals), "rewards": rewards, "dones": terminal}
        rows["numbers"] = torch.from_numpy(numbers)
        kept = {name: each[stored:] for name, each in rows.items()}
        self.goals.put(kept, kept["numbers"], member=member)

    def mark_boundary(self, *, member: int | None = None) -> None:
        super().mark_boundary(member=member)
        self.starts[slice(None) if member is None else member] = self.steps

    def finished(self, member: int | None = None) -> int:
        """Number of the first transition whose goals may still change: the first of a running episode."""
        return max(int(self.starts[member or 0].min()) * self.stride, self.evicted)

    def state_dict(self, *, member: int | None = None) -> dict[str, Any]:
        index = member or 0
        goals = self.goals.rows(self.finished(index), self.added, member=index)
        own = {"starts": self.starts[index].tolist(), **({"goals": goals} if len(goals["numbers"]) else {})}
        return {**super().state_dict(member=member), "hindsight": own}

    def load_state_dict(self, state: dict[str, Any], *, member: int | None = None) -> None:
        super().load_state_dict(state, member=member)
        index, own = member or 0, state["hindsight"]
        self.starts[index], self._recent = own["starts"], None
        if "goals" in own:
            numbers = torch.arange(self.added - len(own["goals"]["numbers"]), self.added)
            self.goals.put(own["goals"], numbers, member=index)

    def _batch(self, slots: Tensor) -> Batch:
        batch = super()._batch(slots)
        choices = torch.randint(self.num_goals + 1, slots.shape, generator=self.generator, device=slots.device)
        numbers = self._count - 1 - (self._newest - slots) % self.capacity
        own = choices == self.num_goals
        found, written = self.goals.sample(self._positions(slots), numbers, choices.masked_fill(own, 0))
        where = written & ~own
        for name in ("obs", "next_obs"):
            self.places.replace(batch[name], found["goals"], where)
        ended = batch["dones"] + batch["truncated"]
        dones = torch.where(where, found["dones"], batch["dones"])
        rewards = torch.where(where, found["rewards"], batch["rewards"])
        return {**batch, "rewards": rewards, "dones": dones, "truncated": (ended - dones).clamp(min=0)}

    def _running_steps(self) -> list[Step]:
        if self._recent is None:
            slots = self._slots(self._first_needed() * self.stride, self.added)
            axis, names = self.columns["dones"].dim() - 1, ("next_obs", "dones")
            next_obs, dones = (self._on_host(self.columns[name].index_select(axis, slots)) for name in names)
            achieved = self.places.achieved(next_obs)
            rows = [slice(first, first + self.stride) for first in range(0, len(slots), self.stride)]
            self._recent = [Step(achieved[:, each], dones[:, each]) for each in rows]
        return self._recent

    def _first_needed(self) -> int:
        """The first step of a running episode of which every transition is stored."""
        return max(int(self.starts.min()), -(-self.evicted // self.stride))

    def _on_host(self, column: Tensor) -> Array:
        """A column as an array with a leading member axis."""
        array: Array = column.cpu().numpy()
        return array if self.members is not None else array[None]


class FinishedGoals:
    """The goals that no longer change, those before every running episode, as checkpoints save them."""

    def __init__(self, replay: HindsightReplayBuffer, member: int = 0) -> None:
        self.replay, self.index = replay, member

    @property
    def added(self) -> int:
        return self.replay.finished(self.index)

    def __len__(self) -> int:
        return self.added - self.replay.evicted

    def rows(self, start: int, stop: int) -> Batch:
        return self.replay.goals.rows(start, stop, member=self.index)

    def restore(self, rows: Batch, start: int) -> None:
        numbers = torch.arange(start, start + len(rows["numbers"]))[-self.replay.capacity :]
        kept = {name: each[-self.replay.capacity :] for name, each in rows.items()}
        self.replay.goals.put(kept, numbers, member=self.index)

    def member(self, index: int) -> FinishedGoals:
        return FinishedGoals(self.replay, index)


def chosen_steps(strategy: str, length: int, goals: int, rng: np.random.Generator) -> Array:
    """Returns the steps [length, goals] whose achieved goals replace those of each step of an episode.

    future: the step itself or a later one; final: the last one; episode: any.
    """
    if strategy == "final":
        return np.full((length, goals), length - 1)
    first = np.arange(length)[:, None] if strategy == "future" else np.zeros((length, 1), np.int64)
    return first + (rng.random((length, goals)) * (length - first)).astype(np.int64)
