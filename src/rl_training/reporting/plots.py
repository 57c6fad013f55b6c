"""Runs as pictures: the return against the steps it took, of one run or of many side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rl_training.statistics import bootstrap_interval, interquartile_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rl_training.reporting.comparison import Curve

Row = dict[str, Any]

TRAINING, EVALUATION = "#9aa5b1", "#1f5fa8"  # what is beside the point in grey, the score itself in blue
INK = "#333333"
# Okabe and Ito's colours, which the colour-blind can tell apart; more algorithms begin again, dashed.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def save_learning_curve(run_dir: Path) -> Path | None:
    """Draws training and evaluation returns to curve.png in the run; None without matplotlib or anything to draw."""
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, and the caller's backend stays as it is
    except ImportError:
        return None
    rows = _rows(run_dir / "metrics.jsonl")
    training = [row for row in rows if row.get("episode_return") is not None]
    evaluations = [row for row in rows if "evaluation" in row]
    if not training and not evaluations:
        return None
    config = yaml.safe_load((run_dir / "config.yaml").read_text(encoding="utf-8"))
    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, training, evaluations)
    _dress(axes, config)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    target = run_dir / "curve.png"
    figure.savefig(target)
    return target


def save_comparison(curves: Mapping[str, Mapping[str, Curve]], target: Path) -> Path:
    """Draws a panel for each environment: a line for each algorithm, its interquartile mean, in its 95% interval.

    One seed has no interval.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('a plot needs matplotlib: pip install "rl-training[plot]"') from error
    panels = {task: lines for task, lines in curves.items() if lines}
    if not panels:
        raise ValueError("there are no curves to draw: no run was evaluated while it trained (see eval_interval)")
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(max(6.4, 4.4 * columns), 3.6 * rows + 0.8), dpi=150, layout="constrained")
    names = list(dict.fromkeys(algo for lines in panels.values() for algo in lines))
    handles: dict[str, Any] = {}
    for number, (task, lines) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        for algo, curve in lines.items():
            handles[algo] = _draw_seeds(axes, curve, names.index(algo))
        axes.set_title(task, loc="left", fontsize=11, fontweight="bold", color=INK)
        axes.set_xlabel("steps", color=INK)
        axes.locator_params(axis="x", nbins=5)
        plain(axes)
    figure.supylabel("return", fontsize=10, color=INK)
    labels = [f"{algo} ({_seeds(panels, algo)})" for algo in handles]
    title = _explained([len(curve.returns) for lines in panels.values() for curve in lines.values()])
    figure.legend(
        list(handles.values()), labels, loc="outside lower center", ncols=min(len(handles), 4), frameon=False,
        fontsize=9, labelcolor=INK, title=title, title_fontsize=9,
    )  # fmt: skip
    figure.savefig(target, format="png")
    return target


def _draw_seeds(axes: Axes, curve: Curve, number: int) -> Any:
    """The line, for the legend."""
    by_step = list(zip(*curve.returns, strict=True))
    colour, style = PALETTE[number % len(PALETTE)], "--" if number >= len(PALETTE) else "-"
    if len(curve.returns) > 1:
        bounds = [bootstrap_interval(returns, resamples=1000) for returns in by_step]
        low, high = [bound.low for bound in bounds], [bound.high for bound in bounds]
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, linewidth=0)
    middles = [interquartile_mean(returns) for returns in by_step]
    (line,) = axes.plot(curve.steps, middles, style, color=colour, linewidth=2, marker="o", markersize=3)
    return line


def _seeds(panels: Mapping[str, Mapping[str, Curve]], algo: str) -> str:
    counts = [len(lines[algo].returns) for lines in panels.values() if algo in lines]
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "1 seed"
    return f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"


def _explained(seeds: list[int]) -> str | None:
    """What the lines are, by how many seeds each has; a single seed needs no word."""
    if max(seeds) == 1:
        return None
    where = " where there are several" if min(seeds) == 1 else ""
    return f"interquartile mean over seeds, with its 95% bootstrap interval{where}"


def _rows(file: Path) -> list[Row]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]  # what follows the last line end is empty, or cut short by a crash


def _draw(axes: Axes, training: list[Row], evaluations: list[Row]) -> None:
    if training:
        steps = [row["step"] for row in training]
        axes.plot(steps, [row["episode_return"] for row in training], color=TRAINING, linewidth=1.2, label="training")
    if evaluations:
        scores = [row["evaluation"] for row in evaluations]
        steps = [row["step"] for row in evaluations]
        means = [score["return_mean"] for score in scores]
        low = [score["return_mean"] - score["return_std"] for score in scores]
        high = [score["return_mean"] + score["return_std"] for score in scores]
        label = f"evaluation, mean of {scores[-1]['episodes']} episodes"
        axes.plot(steps, means, color=EVALUATION, linewidth=2, marker="o", markersize=4, label=label)
        axes.fill_between(steps, low, high, color=EVALUATION, alpha=0.15, linewidth=0, label="± one standard deviation")


def _dress(axes: Axes, config: dict[str, Any]) -> None:
    offline = config.get("dataset") is not None
    algo = str(config["algo"]).upper().replace("_", "-")
    subject = config.get("env_id") or "data"
    axes.set_title(f"{algo} on {subject}", loc="left", fontsize=13, fontweight="bold", color=INK)
    axes.set_title(f"seed {config['seed']}", loc="right", fontsize=9, color=INK)
    axes.set_xlabel("gradient steps" if offline else "environment steps", color=INK)
    axes.set_ylabel("return (sum of an episode's rewards)", color=INK)
    plain(axes)


def plain(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.margins(x=0.02)
    axes.grid(color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color="#c5cad0", labelcolor=INK, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#c5cad0")
