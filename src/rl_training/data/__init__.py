"""Where transitions rest: offline datasets, replay rings, rollouts, and the files they come from."""

from rl_training.data.checks import check_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.readers import load_transition_dataset
from rl_training.data.reference_returns import normalized_score
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout_buffer import RolloutBuffer, generalized_advantages
from rl_training.data.writers import save_npz

__all__ = [
    "ReplayBuffer",
    "RolloutBuffer",
    "TransitionDataset",
    "check_dataset",
    "generalized_advantages",
    "load_transition_dataset",
    "normalized_score",
    "save_npz",
]
