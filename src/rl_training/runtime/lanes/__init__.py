"""Lanes: the sources of a learner's batches. `LANES` is the only table of them."""

from rl_training.algorithms import Learner
from rl_training.runtime.lanes.acting import Actor
from rl_training.runtime.lanes.context import FineTuning, LaneContext, TrainingLane
from rl_training.runtime.lanes.finetune import FineTuneLane
from rl_training.runtime.lanes.imitation import ImitationLane
from rl_training.runtime.lanes.model_based import ModelBasedLane, OfflineModelBasedLane
from rl_training.runtime.lanes.offline import OfflineLane
from rl_training.runtime.lanes.replay import ReplayLane
from rl_training.runtime.lanes.rollout import RolloutLane
from rl_training.runtime.lanes.sequence import SequenceLane

__all__ = [
    "LANES", "Actor", "FineTuneLane", "FineTuning", "ImitationLane", "LaneContext", "ModelBasedLane", "OfflineLane",
    "OfflineModelBasedLane", "ReplayLane", "RolloutLane", "SequenceLane", "TrainingLane", "lane_class",
]  # fmt: skip

LANES: dict[str, type[TrainingLane]] = {
    "offline": OfflineLane,
    "fine_tuning": FineTuneLane,
    "replay": ReplayLane,
    "rollout": RolloutLane,
    "sequence": SequenceLane,
    "imitation": ImitationLane,
    "model_based": ModelBasedLane,
    "offline_model_based": OfflineModelBasedLane,
}


def lane_class(learner: type[Learner] | Learner) -> type[TrainingLane]:
    return LANES[learner.lane_class or learner.lane]
