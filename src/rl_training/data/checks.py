"""What is wrong with a dataset: faults are raised, doubts are told, a sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rl_training.types import Batch

if TYPE_CHECKING:
    from rl_training.data.offline_dataset import TransitionDataset


def check_dataset(dataset: TransitionDataset) -> list[str]:
    """Warnings about data that can be trained on but may not mean what it seems to; empty when there is no doubt."""
    columns = dataset.columns
    doubts = (_constant_rewards(columns), _no_episode_end(columns), _unmarked_breaks(dataset), _shuffled(dataset))
    return [sentence for sentence in doubts if sentence]


def require_columns(columns: Mapping[str, object], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"a dataset needs the columns {list(names)}, missing {missing}, got {list(columns)}")


def require_equal_lengths(columns: Mapping[str, Sized]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns must have the same length, got {lengths}")
    if not any(lengths.values()):
        raise ValueError("the dataset is empty: its columns have no rows")


def require_finite(columns: Mapping[str, Tensor]) -> None:
    for name, column in columns.items():
        if not column.is_floating_point() or bool(column.isfinite().all()):
            continue
        wrong = ~column.isfinite().reshape(len(column), -1).all(1)
        raise ValueError(
            f"column {name!r} is NaN or infinite in {int(wrong.sum())} of {len(column)} rows, "
            f"the first is row {int(wrong.nonzero()[0])}"
        )


def require_flags(columns: Mapping[str, Tensor]) -> None:
    for name in ("dones", "truncated"):
        wrong = (columns[name] != 0) & (columns[name] != 1)
        if bool(wrong.any()):
            first = int(wrong.nonzero()[0])
            raise ValueError(f"column {name!r} must hold 0 or 1, row {first} holds {columns[name][first].item():g}")


def find_breaks(obs: Tensor, next_obs: Tensor) -> Tensor:
    """Per row but the last: whether the following row starts somewhere else than this one led to."""
    here, there = next_obs[:-1].flatten(1), obs[1:].flatten(1)
    if not obs.is_floating_point():
        return (here != there).any(1)
    # Some files keep the two columns in different precision.
    return ~torch.isclose(here, there, rtol=1e-4, atol=1e-5).all(1)


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
