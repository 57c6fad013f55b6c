"""The model-based lane of a config: its model, what ends episodes in it, and the ring of rows it makes."""

from __future__ import annotations

import torch

from rl_training import streams
from rl_training.algorithms import Dynamics, Updater
from rl_training.algorithms.mbpo import MBPOAlgorithm
from rl_training.data.replay.bootstrap import BootstrapSampler
from rl_training.data.replay.model_replay import ModelReplayBuffer
from rl_training.envs.terminations import termination_rule
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.runtime.lanes import ModelBasedLane, OfflineLane, ReplayLane
from rl_training.runtime.lanes.model_fit import ModelFit
from rl_training.types import EnvSpec


def with_model(
    config: TrainConfig, real: ReplayLane | OfflineLane, learner: MBPOAlgorithm, spec: EnvSpec, device: torch.device
) -> ModelBasedLane:
    """This lane, with a model of its environment beside it."""
    options = learner.config
    with streams.fork(config.seed, "init", "model"):
        dynamics = Dynamics.build(spec, options).to(device)
    if options.termination == "auto":
        dynamics.rule = termination_rule(config.env_id, config.env_kwargs)
    updater = Updater([dynamics], capture=device.type == "cuda")
    generator = streams.generator(config.seed, "model", device=device)
    rows = BootstrapSampler(real.source, options.model_members, generator)
    longest = max(options.rollout_schedule[2:])
    imagined = ModelReplayBuffer(options.model_retention * longest * options.rollout_batch_size, spec, device=device)
    return ModelBasedLane(real, learner, ModelFit(dynamics, updater, rows), imagined)
