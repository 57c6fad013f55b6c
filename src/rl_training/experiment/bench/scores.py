"""The stored score of a run: the mean return of evaluation episodes, or an off-policy estimate."""

from collections.abc import Mapping
from typing import Any


def is_estimate(score: Mapping[str, Any]) -> bool:
    return "estimate" in score


def value_of(score: Mapping[str, Any]) -> float:
    return float(score["estimate"] if is_estimate(score) else score["return_mean"])
