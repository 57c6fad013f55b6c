"""Selects the actor of a run."""

from typing import Any

from rl_training import streams
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.lanes.captured_acting import CapturedActor
from rl_training.runtime.lanes.context import LaneContext


def new_actor(context: LaneContext) -> Actor:
    """On a GPU with environments of the host and a policy without recurrent state, acting is captured."""
    generator = streams.generator(context.seed, "exploration", device=context.device)
    on_gpu = context.device.type == "cuda" and not context.pool.on_device
    kind = CapturedActor if on_gpu and not context.learner.initial_memory(1) else Actor
    noise = ActionNoise.build(context.options)
    policy: Any = context.policy
    return kind(
        policy, context.pool, generator, context.device, noise=noise, statistics=policy.running_statistics(),
        returns=policy.return_statistics(),
    )  # fmt: skip
