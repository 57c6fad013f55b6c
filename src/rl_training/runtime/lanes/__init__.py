"""Lanes: the ways experience reaches a learner."""

from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.finetune import FineTuneLane
from rl_training.runtime.lanes.imitation import ImitationLane
from rl_training.runtime.lanes.model_based import ModelBasedLane
from rl_training.runtime.lanes.offline import OfflineLane
from rl_training.runtime.lanes.replay import ReplayLane
from rl_training.runtime.lanes.rollout import RolloutLane
from rl_training.runtime.lanes.sequence import SequenceLane

__all__ = [
    "Actor",
    "FineTuneLane",
    "ImitationLane",
    "ModelBasedLane",
    "OfflineLane",
    "ReplayLane",
    "RolloutLane",
    "SequenceLane",
]
