"""Scores of off-policy estimates against played returns, and their picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.types import Array


def calibration(rows: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Spearman's rank correlation of the estimates with the truth, and the fraction of intervals that hold it."""
    known = [row for row in rows if row[kind]["estimate"] is not None]
    truth, found = ([row["truth"] for row in known], [row[kind]["estimate"] for row in known])
    intervals = [(row["truth"], row[kind]["interval"]) for row in known if row[kind]["interval"] is not None]
    held = [low <= true <= high for true, (low, high) in intervals]
    if len(known) < 2:
        return {"checkpoints": len(known)}
    return {
        "rank_correlation": float(np.corrcoef(ranks(truth), ranks(found))[0, 1]),
        "coverage": float(np.mean(held)) if held else None, "intervals": len(held),
        "mean_absolute_error": float(np.abs(np.subtract(truth, found)).mean()), "checkpoints": len(known),
    }  # fmt: skip


def ranks(values: Sequence[float]) -> Array:
    """Ranks from 0; equal values share the mean of their ranks."""
    array = np.asarray(values)
    return (array[:, None] > array).sum(1) + ((array[:, None] == array).sum(1) - 1) / 2


def save_plot(rows: Sequence[dict[str, Any]], scores: dict[str, Any], title: str, file: Path) -> None:
    """Estimates with their intervals against played returns, one panel for each estimator."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(scores), figsize=(12, 4), sharey=True, layout="constrained")
    truth = [row["truth"] for row in rows]
    for axes, (kind, score) in zip(panels, scores.items(), strict=True):
        for number, algo in enumerate(dict.fromkeys(row["checkpoint"].split()[0] for row in rows)):
            own = [row for row in rows if row["checkpoint"].split()[0] == algo and row[kind]["estimate"] is not None]
            middle = np.array([row[kind]["estimate"] for row in own])
            bounds = [row[kind]["interval"] or [row[kind]["estimate"]] * 2 for row in own]
            low, high = np.reshape(bounds, (-1, 2)).T
            errors = np.maximum([middle - low, high - middle], 0)
            axes.errorbar([row["truth"] for row in own], middle, errors, fmt="o", ms=4, lw=0.8, label=algo,
                          color=f"C{number}")  # fmt: skip
        axes.plot([min(truth), max(truth)], [min(truth), max(truth)], color="gray", lw=0.8)
        label = f", rank correlation {score['rank_correlation']:.2f}" if score["checkpoints"] > 1 else ": none"
        axes.set(title=f"{kind.upper()}{label}", xlabel="played return, discounted")
    panels[0].set_ylabel(f"estimate and 95% interval, {title}")
    panels[0].legend()
    figure.savefig(file, dpi=110)
