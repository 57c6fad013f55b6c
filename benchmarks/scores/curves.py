"""Learning curves of stored runs, with the published scores beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rl_training.reporting.plots import INK, PALETTE, new_figure, plain
from scores.references import Reference, comparable, published
from scores.rows import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PUBLISHED = PALETTE[:2]
CAPTION = "thin lines: seeds; thick line: their mean; error bars: standard deviation over published seeds"


def save_curves(files: Sequence[Path], target: Path) -> None:
    """Draws a panel for each stored result: the evaluations of every seed, and the first published source."""
    figure = new_figure(11, 3.3 * ((len(files) + 1) // 2) + 0.6)
    for place, file in enumerate(files):
        axes = figure.add_subplot((len(files) + 1) // 2, 2, place + 1)
        draw(axes, json.loads(file.read_text(encoding="utf-8")))
    figure.supylabel("return", fontsize=10, color=INK)
    figure.supxlabel(CAPTION, fontsize=9, color=INK)
    figure.savefig(target)


def draw(axes: Axes, result: dict[str, Any]) -> None:
    curves = [run["curve"] for run in result["runs"]]
    steps = [step for step, _ in curves[0]]
    for curve in curves:
        axes.plot(steps, [score for _, score in curve], color=OURS, linewidth=0.8, alpha=0.4)
    means = [fmean(scores) for scores in zip(*([score for _, score in curve] for curve in curves), strict=True)]
    axes.plot(steps, means, color=OURS, linewidth=2, label=f"rl_training ({len(curves)} seeds)")
    figures = first_source(result, steps[-1])
    axes.errorbar(
        [each.budget for each in figures], [each.score for each in figures], [each.std or nan for each in figures],
        fmt="v", color=PUBLISHED, markersize=7, capsize=3, linewidth=1.2, zorder=5, label=described(figures[0]),
    )  # fmt: skip
    name = NAMES.get(result["algo"], result["algo"].upper())
    axes.set_title(f"{name} on {result['env']}", loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel("steps", fontsize=9, color=INK)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.locator_params(axis="x", nbins=5)
    axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=INK)
    plain(axes)


def first_source(result: dict[str, Any], last: int) -> list[Reference]:
    task = (result["algo"], result["env"], None)
    figures = [each for each in comparable(published(), task, result.get("setting")) if (each.budget or 0) <= last]
    return [each for each in figures if each.source == figures[0].source]


def described(figure: Reference) -> str:
    seeds = "1 seed" if figure.seeds == 1 else f"{figure.seeds} seeds"
    return f"{figure.source} ({', '.join(word for word in (figure.version, seeds) if word)})"
