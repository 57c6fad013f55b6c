"""Calls of a model with or without memory (an LSTM or GRU), and the memory of a rollout as columns.

Each step of a rollout stores the memory before it. One pass over all steps at once then gives values and probabilities,
and sequences can start at any step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.models.masks import valid_actions
from rl_training.models.recurrent import IS_FIRST, Recurrent
from rl_training.types import Batch

PREFIX = "memory_"  # of the names of columns


def has_memory(model: Any) -> bool:
    return isinstance(getattr(model, "memory", None), Recurrent)


def check_memory(model: Any, config: Any) -> None:
    """Raises ValueError if a model of your own and the option `network.memory`, which sets sequences, do not agree."""
    if has_memory(model) != config.is_recurrent:
        has, fix = ("has", "set") if has_memory(model) else ("has no", "pass it to the model in build, or leave out")
        name = f"network {config.own_network}" if config.own_network else f"the model {type(model).__name__}"
        memory = None if config.network is None else config.network.memory
        raise ValueError(f"{name} {has} recurrent layers, but network.memory is {memory}; {fix} network.memory")


def policy_and_memory(model: Any, obs: Tensor, memory: Batch | None) -> tuple[Any, Batch | None, Batch]:
    """Returns the policy for observations [rows, ...], the memory after them, and the memory before them as columns.

    Without `memory`, the observations are the first of an episode.
    """
    if not has_memory(model):
        return model.actor(model.encoder(obs), *valid_actions(model, obs)), None, {}
    before: Batch = model.memory.initial(len(obs)) if memory is None else memory
    features, _, after = model.features(obs, before)
    policy = model.actor(features, *valid_actions(model, obs))
    return policy, after, {PREFIX + name: each for name, each in before.items()}


def memory_columns(batch: Batch) -> Batch:
    return {name: column for name, column in batch.items() if name.startswith(PREFIX)}


def memory_arguments(batch: Batch) -> tuple[Batch, ...]:
    """Extra arguments of a model for this batch: (memory before it,), or () without recurrent layers."""
    columns = {name.removeprefix(PREFIX): column for name, column in memory_columns(batch).items()}
    return (columns,) if columns else ()


def memory_around(model: Any, obs: Tensor, rollout: Batch) -> tuple[tuple[Batch, ...], tuple[Batch, ...]]:
    """Memory before and after each step of a rollout [time, envs, ...], as further arguments of a model."""
    before = memory_arguments({name: column.flatten(0, 1) for name, column in memory_columns(rollout).items()})
    return before, tuple(model.features(obs, memory)[2] for memory in before)


def prepared_rows(learner: Any, rollout: Batch) -> Batch:
    """Prepares a rollout [time, envs, ...] and returns the rows to sample from."""
    with torch.no_grad():
        prepared = learner.prepare(rollout)
    name, axes = f"{type(learner).__name__}.prepare", list(rollout["rewards"].shape)
    if not isinstance(prepared, dict):
        raise TypeError(f"{name} must return a dict of columns [time, envs, ...], got {type(prepared).__name__}")
    for column, values in prepared.items():
        if (shape := list(values.shape))[:2] != axes:
            raise ValueError(f"{name} must return columns [time, envs, ...], here {axes}, but {column!r} is {shape}")
    return rollout_rows(prepared, rollout, learner.config.steps_per_row)


def rollout_rows(prepared: Batch, rollout: Batch, length: int) -> Batch:
    """Rows of a prepared rollout [time, envs, ...] to sample from: steps, or sequences with the memory before them."""
    memory = memory_columns(rollout)
    if not memory:
        return {name: column.flatten(0, 1) for name, column in prepared.items()}
    rows = {name: _sequences(column, length) for name, column in {**prepared, **memory}.items()}
    states = memory.keys() - {PREFIX + IS_FIRST}
    return {name: column[:, 0] if name in states else column for name, column in rows.items()}


def _sequences(column: Tensor, length: int) -> Tensor:
    """Cuts [time, envs, ...] into sequences [rows, length, ...] of one environment each."""
    return column.unflatten(0, (-1, length)).transpose(1, 2).flatten(0, 1)
