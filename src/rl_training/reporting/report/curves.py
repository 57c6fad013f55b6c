"""Learning curves of a report: thinned curves of the seeds, and their interquartile mean with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.reporting.report.groups import Gathered, Points, ReportGroup
from rl_training.statistics import bootstrap_band

GRID = 200  # steps of a line with its band
MOST_POINTS, LEAST_POINTS, ALL_POINTS = 400, 40, 60_000  # of one seed, and of all seeds of the page
KINDS = ("evaluation", "training")

Floats = NDArray[np.float64]


def curve_data(gathered: Gathered) -> list[dict[str, Any]]:
    """One panel for each task; `groups` hold the curves by kind and refer to a group by its number."""
    limit = min(MOST_POINTS, max(LEAST_POINTS, ALL_POINTS // max(1, 2 * len(gathered.members))))
    panels: dict[str, dict[str, Any]] = {}
    for group in gathered.groups:
        kinds = {"evaluation": [member.evaluations for member in group.members],
                 "training": [member.training for member in group.members]}  # fmt: skip
        drawn = {kind: _curves(group, seeds, limit) for kind, seeds in kinds.items() if any(seeds)}
        if not drawn:
            continue
        panel = panels.setdefault(group.task, {"title": group.task, "axes": [], "groups": []})
        panel["groups"].append({"group": group.number, **drawn})
        if (axis := x_axis(group)) not in panel["axes"]:
            panel["axes"].append(axis)
    return [{**panel, "x_label": " or ".join(panel.pop("axes"))} for panel in panels.values()]


def x_axis(group: ReportGroup) -> str:
    if group.dataset is None:
        return "environment steps"
    online = group.first_run is not None and group.first_run.config.get("online_steps")
    return "updates, then environment steps" if online else "updates"


def _curves(group: ReportGroup, seeds: Sequence[Points], limit: int) -> dict[str, Any]:
    named = [(member.seed, np.array(each)) for member, each in zip(group.members, seeds, strict=True) if each]
    lines = [{"seed": seed, **_columns(thin(curve, limit))} for seed, curve in named]
    return {"seeds": lines, "middle": middle([curve for _, curve in named])}


def _columns(curve: Floats) -> dict[str, list[float]]:
    return {"x": rounded(curve[:, 0]), "y": rounded(curve[:, 1])}


def thin(curve: Floats, limit: int) -> Floats:
    """Averages neighbouring points until there are at most `limit`; the last point stays as it is."""
    if len(curve) <= limit:
        return curve
    parts = np.array_split(curve[:-1], limit - 1)
    return np.stack([*(part.mean(0) for part in parts), curve[-1]])


def middle(curves: Sequence[Floats]) -> dict[str, list[Any]]:
    """Interquartile mean over the seeds that have reached a step, and its interval where there are several."""
    curves = [thin(curve, GRID) for curve in curves]
    steps = np.unique(np.concatenate([curve[:, 0] for curve in curves]))
    if len(steps) > GRID:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, GRID).round().astype(int))]
    values = np.stack([np.interp(steps, curve[:, 0], curve[:, 1], left=np.nan, right=np.nan) for curve in curves], 1)
    present = np.isfinite(values)
    steps, values, present = (each[present.any(1)] for each in (steps, values, present))
    bands = np.full((3, len(steps)), np.nan)
    for seeds in np.unique(present, axis=0):  # a band needs the same seeds at each of its steps
        rows = (present == seeds).all(1)
        bands[:, rows] = bootstrap_band(values[np.ix_(rows, seeds)])
    names = dict(zip(("y", "low", "high"), map(rounded, bands), strict=True))
    return {"x": rounded(steps), **names, "n": present.sum(1).tolist()}


def rounded(values: Floats) -> list[float]:
    """Six digits, as many as a plot shows; whole numbers without a decimal point."""
    short = (float(f"{value:.6g}") for value in values.tolist())
    return [int(value) if value.is_integer() else value for value in short]
