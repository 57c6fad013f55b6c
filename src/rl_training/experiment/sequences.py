"""The lane of a learner that remembers: its replay keeps windows, and what the learner remembered before them."""

from __future__ import annotations

import torch

from rl_training.algorithms import Learner, SequenceConfig
from rl_training.data import RecurrentReplayBuffer
from rl_training.data.sampling import Layout
from rl_training.runtime.lanes import Actor, SequenceLane

STEP = ("action", "is_first")  # of a memory: what the records hold as well


def sequence_lane(learner: Learner, actor: Actor, options: SequenceConfig, seed: int) -> SequenceLane:
    """`seed` is that of the draws."""
    replay = RecurrentReplayBuffer(
        options.buffer_size, actor.pool.spec, num_envs=actor.pool.num_envs, window=options.window,
        latents=kept_memory(learner) if options.stored_latents else None, device=actor.device,
    )  # fmt: skip
    replay.seed(seed)
    return SequenceLane(actor, replay, options)


def kept_memory(learner: Learner) -> dict[str, Layout]:
    """What of a learner's memory is kept at each record, floats in half precision."""
    memory = {name: rows for name, rows in learner.initial_memory(1).items() if name not in STEP}
    return {
        name: (tuple(rows.shape[1:]), torch.float16 if rows.is_floating_point() else rows.dtype)
        for name, rows in memory.items()
    }
