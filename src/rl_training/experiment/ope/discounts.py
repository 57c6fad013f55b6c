"""The discount that all estimates share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.data import TransitionDataset
from rl_training.experiment.agent import Agent

BY_COLUMN = "the column discounts of the data"


def with_time(runs: Sequence[Path | str], agents: Sequence[Agent]) -> Agent:
    """Returns the first agent that discounts by time, else the first one. Algorithms such as bc do not discount."""
    timed = {run: agent for run, agent in zip(runs, agents, strict=True) if _time(agent)[0] is not None}
    for run, agent in timed.items():
        if _time(agent) != _time(next(iter(timed.values()))):
            raise ValueError(
                f"{next(iter(timed))} and {run} differ in discount_time or time_unit, so their estimates would not be "
                "comparable; rank them separately"
            )
    return next(iter(timed.values()), agents[0])


def _time(agent: Agent) -> tuple[Any, Any]:
    options = agent.config.algo_kwargs
    return options.get("discount_time"), options.get("time_unit")


def require_used_gamma(dataset: TransitionDataset, options: Mapping[str, Any]) -> None:
    """Raises ValueError for a gamma that discounts of the data would replace."""
    if "gamma" in options and "discounts" in dataset.columns and "discount_steps" not in dataset.columns:
        raise ValueError(
            "gamma has no effect: the data has a discount for each row (column discounts); remove --gamma, or that "
            "column (--columns discounts=)"
        )


def describe_discount(dataset: TransitionDataset, gamma: float, agent: Agent | None) -> str:
    """Text after "discounted by"."""
    if "discount_steps" in dataset.columns:
        column, unit = (None, None) if agent is None else _time(agent)
        return f"{gamma:g} per " + ("time unit" if unit is None else f"{unit:g} of {column!r}")
    return BY_COLUMN if "discounts" in dataset.columns else f"{gamma:g}"


def discount_notes(agents: Sequence[Agent], gamma: float, discount: str) -> list[str]:
    """Returns a note for each difference between the discounts of training and of the estimates."""
    trained, notes = {getattr(agent.learner.config, "gamma", gamma) for agent in agents}, []
    they, are = ("the run was", "it is") if len(agents) == 1 else ("the runs were", "all are")
    if discount == BY_COLUMN:
        return []
    if trained != {gamma}:
        values = ", ".join(f"{each:g}" for each in sorted(trained))
        notes.append(f"{they} trained with the discount {values}, and {are} estimated with {gamma:g}")
    options = [getattr(agent.learner.config, "discount_time", "none") for agent in agents]
    without = sum(each is None for each in options)
    if without and discount != f"{gamma:g}":
        notes.append(
            f"{without} of {len(agents)} runs were trained without discount_time, and {are} discounted by {discount}"
        )
    return notes
