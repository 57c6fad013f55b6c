"""What may be wrong with a dataset, a sentence each; what surely is, is refused where the dataset is made."""

from __future__ import annotations

from rl_training.data.faults import find_breaks
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.types import Batch


def check_dataset(dataset: TransitionDataset) -> list[str]:
    """Warnings about data that can be trained on but may not mean what it seems to; empty when there is no doubt."""
    columns = dataset.columns
    doubts = (_constant_rewards(columns), _no_episode_end(columns), _unmarked_breaks(dataset), _shuffled(dataset))
    return [sentence for sentence in doubts if sentence]


def _constant_rewards(columns: Batch) -> str:
    rewards = columns["rewards"]
    if bool((rewards != rewards[0]).any()):
        return ""
    if bool(columns["dones"].any()):
        return f"every reward is {rewards[0].item():g}: only where episodes terminate can tell one action from another"
    return f"every reward is {rewards[0].item():g} and no episode terminates: nothing tells one action from another"


def _no_episode_end(columns: Batch) -> str:
    if bool((columns["dones"] + columns["truncated"]).any()):
        return ""
    return f"no row ends an episode (dones and truncated are all 0): the {len(columns['dones'])} rows count as one"


def _unmarked_breaks(dataset: TransitionDataset) -> str:
    breaks = find_breaks(dataset.columns["obs"], dataset.columns["next_obs"]) & ~dataset.episode_ends[:-1]
    if not bool(breaks.any()):
        return ""
    return (
        f"{int(breaks.sum())} rows lead to another observation than the following row starts from, though neither "
        f"dones nor truncated ends an episode there; the first is row {int(breaks.nonzero()[0])}"
    )


def _shuffled(dataset: TransitionDataset) -> str:
    episodes = len(dataset.episode_offsets)
    if len(dataset) < 10 or episodes <= len(dataset) / 2:
        return ""
    return (
        f"{len(dataset)} rows make {episodes} episodes: they look shuffled, so episode returns and returns-to-go "
        "mean little"
    )
