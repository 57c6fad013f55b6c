"""Hindsight replay buffers with goals of one number, and episodes to fill them with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.data import HindsightReplayBuffer
from rl_training.types import Array, Batch, EnvSpec

NUMBER = {"type": "Box", "dtype": "float32", "shape": [1]}
PARTS = {"observation": NUMBER, "achieved_goal": NUMBER, "desired_goal": NUMBER}
SPEC = EnvSpec((3,), "discrete", 2, obs_space={"type": "Dict", "subspaces": PARTS})
ACHIEVED, DESIRED, OBSERVATION = range(3)  # the order of the names
GOAL = -7.0  # of every episode; none of them achieves it


def equal_goals(achieved: Array, goals: Array, dones: Array) -> tuple[Array, Array]:
    """0 and terminal where the goal is achieved; -1 elsewhere."""
    reached = (achieved == goals).all(-1)
    return reached.astype(np.float32) - 1, reached.astype(np.float32)


def buffer(capacity: int = 100, *, outcomes: Any = equal_goals, **options: Any) -> HindsightReplayBuffer:
    made = HindsightReplayBuffer(capacity, SPEC, outcomes=outcomes, **options)
    made.seed(0)
    return made


def play(replay: HindsightReplayBuffer, ends: list[list[int]]) -> None:
    """Adds a step for each list, with an entry for each environment: 1 terminated, 2 truncated.

    After step s of the buffer, environment e has achieved 10 * s + e, for members plus 1000 * member.
    """
    for end in ends:
        s, envs = replay.steps, torch.arange(len(end))
        members = 1000 * torch.arange(replay.members or 1).unsqueeze(1)
        achieved = (10.0 * s + envs + members).float()
        flags = torch.tensor(end).expand(achieved.shape)
        goal = torch.full_like(achieved, GOAL)
        rows = {
            "obs": torch.stack([achieved - 10, goal, achieved - 10.5], -1), "actions": flags * 0,
            "rewards": torch.full_like(achieved, -1.0), "next_obs": torch.stack([achieved, goal, achieved - 0.5], -1),
            "dones": (flags == 1).float(), "truncated": (flags == 2).float(),
        }  # fmt: skip
        replay.add(rows if replay.members else {name: each[0] for name, each in rows.items()})


def goals_of(batch: Batch) -> dict[float, set[float]]:
    """The goals of each transition in a batch, by what it achieved."""
    found: dict[float, set[float]] = {}
    for row in batch["next_obs"].flatten(0, -2).tolist():
        found.setdefault(row[ACHIEVED], set()).add(row[DESIRED])
    return found
