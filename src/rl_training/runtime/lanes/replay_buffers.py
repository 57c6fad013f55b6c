"""Selects the replay buffer of a run."""

from typing import Any

import torch

from rl_training import streams
from rl_training.data import FrameReplayBuffer, HindsightReplayBuffer, ReplayBuffer
from rl_training.envs.goals import GoalRewards
from rl_training.runtime.lanes.context import LaneContext

PRIORITY_OPTIONS = ("prioritized", "priority_alpha")  # only some algorithms have them


def new_replay(context: LaneContext, device: torch.device) -> ReplayBuffer:
    options, pool, spec = context.options, context.pool, context.pool.spec
    kind, own, sizes = _kind(context)
    size = kind.row_bytes(spec, prioritized=getattr(options, "prioritized", False), **sizes)
    context.require_memory("buffer_size", options.buffer_size, size)
    replay = kind(
        options.buffer_size, spec, device=device, stride=pool.num_envs, gamma=options.gamma,
        members=len(context.learners) if len(context.learners) > 1 else None, n_step=options.n_step,
        **{name: getattr(options, name) for name in PRIORITY_OPTIONS if hasattr(options, name)}, **own,
    )  # fmt: skip
    replay.seed(streams.derive(context.seed, "sampling"))
    return replay


def _kind(context: LaneContext) -> tuple[type[ReplayBuffer], dict[str, Any], dict[str, Any]]:
    """Returns the class, the options that only it has, and those of them that set the size of a row."""
    options, pool = context.options, context.pool
    if getattr(options, "hindsight", "none") == "none":
        stacked = getattr(options, "stacked_frames", None)
        by_frames = pool.stacks_frames if stacked is None else stacked
        return FrameReplayBuffer if by_frames else ReplayBuffer, {}, {}
    if pool.on_device:
        raise ValueError(
            "hindsight needs an environment with compute_reward, and env_backend: device has none; "
            "set env_backend to gymnasium"
        )
    size = {"goals": options.hindsight_goals}
    seed = streams.derive(context.seed, "hindsight")
    outcomes = GoalRewards(pool.source, pool.spec)
    return HindsightReplayBuffer, {"outcomes": outcomes, "strategy": options.hindsight, "goal_seed": seed, **size}, size
