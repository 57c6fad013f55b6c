"""A picture for each family: a panel per task with the score of every seed, peers and published scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from rl_training.reporting.plots import FAINT, INK, PALETTE, new_figure, plain
from scores.page import number, short
from scores.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
LABEL = 40  # characters of a line of a label; two lines fit beside a row
LINE, FRAME = 0.26, 0.75  # inches of height of a row, and of what is around the rows of a panel
SEED, PUBLISHED, PEER = PALETTE[:3]


def save_picture(rows: Sequence[Row], target: Path) -> None:
    tasks: dict[str, list[Row]] = {}
    for row in rows:
        if row.final:
            tasks.setdefault(task_name(row, rows), []).append(row)
    tallest_first = sorted(tasks.items(), key=lambda task: -len(task[1]))
    columns = min(COLUMNS, len(tasks))
    heights = [LINE * len(shown) + FRAME for _, shown in tallest_first[::columns]]
    figure = new_figure(4.4 * columns + 0.2, sum(heights) + 0.5)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    handles = {}
    for place, (task, shown) in enumerate(tallest_first):
        axes = figure.add_subplot(grid[place // columns, place % columns])
        draw(axes, task, shown)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=9,
        labelcolor=INK,
    )  # fmt: skip
    figure.savefig(target)


def task_name(row: Row, rows: Sequence[Row]) -> str:
    """The dataset, with the environment if another one has data of the same name."""
    if row.dataset is None:
        return row.env
    shared = any(other.dataset == row.dataset and other.env != row.env for other in rows)
    return f"{row.env}, {row.dataset}" if shared else row.dataset


def draw(axes: Axes, task: str, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        seeds = {"s": 22, "alpha": 0.55, "linewidths": 0, "zorder": 3}
        axes.scatter(row.seeds, [place] * len(row.seeds), color=SEED, label="a seed", **seeds)
        if row.interval is not None:
            axes.hlines(place, *row.interval, color=SEED, linewidth=5, alpha=0.25, label="interquartile mean, 95%")
        axes.plot(row.middle, place, "|", color=SEED, markersize=13, markeredgewidth=2, zorder=4)
        for score in peer_scores(row):
            axes.scatter(score, place + 0.3, s=22, marker="D", facecolors="none", edgecolors=PEER,
                         label="a seed of the peer", zorder=3)  # fmt: skip
        for figure in row.published()[:1]:
            same = figure.budget == row.budget
            axes.plot(figure.score, place, "v", color=PUBLISHED, markerfacecolor=PUBLISHED if same else "white",
                      markersize=7, label="published" if same else "published, other budget", zorder=5)  # fmt: skip
    plain(axes)
    axes.set_yticks(range(len(rows)), [fill(label(row, rows), LABEL) for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(task, loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.locator_params(axis="x", nbins=5)
    if np.ptp(axes.dataLim.intervalx) == 0:  # all scores are equal
        axes.set_xticks(axes.dataLim.intervalx[:1], [number(axes.dataLim.intervalx[0])])
    axes.margins(x=0.06)
    axes.tick_params(axis="y", length=0, colors=FAINT, labelcolor=INK)


def peer_scores(row: Row) -> Sequence[float]:
    """Scores of the peer's seeds, or of peers run apart with the same setting and budget."""
    if row.peer is not None:
        return row.peer.seeds
    alike = (row.setting, row.budget)
    return [figure.score for figure in row.peer_figures() if (figure.setting, figure.budget) == alike]


def label(row: Row, beside: Sequence[Row]) -> str:
    """Algorithm and budget; what else distinguishes the row from another one of the algorithm beside it."""
    alike = [other for other in beside if other.name == row.name]
    task = row.config.partition("/")[2] if row.config else ""
    variant = "as SB3" if row.peer is not None else row.setting or ("mixture" if task.endswith("_mixture") else "")
    return (
        f"{row.name}, {variant}, {short(row.budget)}"
        if variant and len(alike) > 1
        else f"{row.name} {short(row.budget)}"
    )
