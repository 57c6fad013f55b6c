"""Where transitions rest: offline datasets, replay rings, rollouts, and the files they come from."""

from rl_training.data.checks import check_dataset, inspect_columns
from rl_training.data.frame_replay import FrameReplayBuffer
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_transition_datasets
from rl_training.data.readers import load_transition_dataset, read_columns
from rl_training.data.reference_returns import normalized_score
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.rollout_buffer import RolloutBuffer, generalized_advantages
from rl_training.data.writers import save_minari, save_npz, save_parquet, save_transition_dataset

__all__ = [
    "FrameReplayBuffer",
    "ReplayBuffer",
    "RolloutBuffer",
    "TransitionDataset",
    "check_dataset",
    "generalized_advantages",
    "inspect_columns",
    "load_transition_dataset",
    "mix_transition_datasets",
    "normalized_score",
    "read_columns",
    "save_minari",
    "save_npz",
    "save_parquet",
    "save_transition_dataset",
]
