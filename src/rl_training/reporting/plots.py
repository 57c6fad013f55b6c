"""Learning curves: return against steps, for one run or for the algorithms of a benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.experiment.config.train_config import load_config
from rl_training.messages import many
from rl_training.statistics import bootstrap_interval, interquartile_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from rl_training.reporting.comparison import Curve

Row = dict[str, Any]

TRAINING, EVALUATION = "#9aa5b1", "#1f5fa8"
INK, FAINT = "#333333", "#c5cad0"
# The colours of Okabe and Ito, which people with colour blindness can distinguish.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MAX_SHARED = 3  # algorithms in one panel; with more, every algorithm gets its own panel
COLUMNS = 3
LINE_HEIGHT = 0.07  # of a label, as a fraction of the panel's height


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure  # not pyplot: no window, and the caller's backend stays as it is
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError('a plot needs matplotlib: pip install "rl-training[plot]"') from error
    return Figure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))


def save_learning_curve(run_dir: Path) -> Path | None:
    """Draws training and evaluation returns to curve.png in the run; None without matplotlib or without returns."""
    from rl_training.runtime.metrics_table import logged_rows  # imports torch

    rows = logged_rows(run_dir)
    training = [row for row in rows if row.get("episode_return") is not None]
    evaluations = [row for row in rows if "evaluation" in row]
    if not training and not evaluations:
        return None
    try:
        figure = new_figure(8, 4.8)
    except ImportError:
        return None
    config = load_config(str(run_dir / "config.yaml"))
    axes = figure.add_subplot()
    if training:
        returns = [row["episode_return"] for row in training]
        axes.plot([row["step"] for row in training], returns, color=TRAINING, linewidth=1.2, label="training")
    if evaluations:
        _draw_evaluations(axes, evaluations)
    algo = str(config["algo"]).upper().replace("_", "-")
    axes.set_title(f"{algo} on {config.get('env_id') or 'data'}", **title_style(13))
    axes.set_title(f"seed {config['seed']}", loc="right", fontsize=9, color=INK)
    axes.set_xlabel("gradient steps" if config.get("dataset") is not None else "environment steps", color=INK)
    axes.set_ylabel("return of an episode", color=INK)
    plain(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    target = run_dir / "curve.png"
    figure.savefig(target)
    return target


def save_comparison(curves: Mapping[str, Mapping[str, Curve]], target: Path) -> Path:
    """Draws the interquartile mean over seeds of each algorithm on each task, with its 95% bootstrap interval."""
    # Up to three algorithms share a panel. With more, every algorithm has its own panel, in which the others are grey.
    tasks = {task: lines for task, lines in curves.items() if lines}
    if not tasks:
        raise ValueError("there are no curves to draw: no run was evaluated while it trained (see eval_interval)")
    algos = list(dict.fromkeys(algo for lines in tasks.values() for algo in lines))
    styles = dict(zip(algos, zip(short_names(algos), map(line_style, range(len(algos))), strict=True), strict=True))
    separate = max(map(len, tasks.values())) > MAX_SHARED
    figure = (_separate_panels if separate else _shared_panels)(tasks, styles)
    figure.supylabel("return", fontsize=10, color=INK)
    figure.supxlabel(_caption(tasks, separate), fontsize=9, color=INK)
    figure.savefig(target)
    return target


Styles = Mapping[str, tuple[str, dict[str, Any]]]  # by algorithm: its short name, and the colour and style of its line


def short_names(algos: Sequence[str]) -> list[str]:
    """`dqn` for `dqn/cartpole` and `fast` for `plans/fast.yaml`, unless two algorithms would get the same name."""
    short = [Path(algo).stem if algo.endswith((".yaml", ".yml")) else algo.split("/")[0] for algo in algos]
    return [name if short.count(name) == 1 else algo for name, algo in zip(short, algos, strict=True)]


def line_style(number: int) -> dict[str, Any]:
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": ("-", "--", ":")[number // len(PALETTE) % 3]}


def _shared_panels(tasks: Mapping[str, Mapping[str, Curve]], styles: Styles) -> Figure:
    columns = min(2, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = new_figure(7 if columns == 1 else 11, 3.6 * rows + 0.6)
    for number, (task, lines) in enumerate(tasks.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        for algo, curve in lines.items():
            _draw_seeds(axes, curve, styles[algo][1])
        axes.set_title(task, **title_style(11))
        _finish_panel(axes)
        _label_ends(axes, lines, styles)
    return figure


def _label_ends(axes: Axes, lines: Mapping[str, Curve], styles: Styles) -> None:
    """Writes each algorithm's name to the right of the panel, at the height of its last point."""
    low, high = axes.get_ylim()
    longest = max(curve.steps[-1] for curve in lines.values())
    ends = {algo: (curve.steps[-1], _middles(curve)[-1]) for algo, curve in lines.items()}
    lines_of_text = 1 if all(step == longest for step, _ in ends.values()) else 2
    heights = spread([(value - low) / (high - low) for _, value in ends.values()], LINE_HEIGHT * lines_of_text)
    for (algo, (step, value)), height in zip(ends.items(), heights, strict=True):
        name, style = styles[algo]
        early = f"\nends at {_short(step)}" if step < longest else ""
        axes.annotate(
            f"{name} ({_seeds(lines[algo])}){early}", (step, value), (1.04, height), textcoords="axes fraction",
            color=style["color"], fontsize=9, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": style["color"], "linewidth": 0.7, "alpha": 0.7},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Moves heights apart to at least `gap`, in their order and below 1."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for below, above in pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    limit = 1.0
    for number in reversed(order):
        placed[number] = min(placed[number], limit)
        limit = placed[number] - gap
    return placed


def _separate_panels(tasks: Mapping[str, Mapping[str, Curve]], styles: Styles) -> Figure:
    rows = [math.ceil(len(lines) / COLUMNS) for lines in tasks.values()]
    figure = new_figure(10, 2.4 * sum(rows) + 0.3 * len(rows) + 0.5)
    parts = figure.subfigures(len(tasks), 1, height_ratios=rows, squeeze=False)[:, 0]
    for part, count, (task, lines) in zip(parts, rows, tasks.items(), strict=True):
        part.suptitle(task, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK)
        _draw_task(part, count, lines, styles)
    return figure


def _draw_task(part: FigureBase, rows: int, lines: Mapping[str, Curve], styles: Styles) -> None:
    panels = part.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat
    longest = max(curve.steps[-1] for curve in lines.values())
    for number, (algo, curve) in enumerate(lines.items()):
        axes = panels[number]
        for other in lines.values():
            axes.plot(other.steps, _middles(other), color=FAINT, linewidth=1)
        name, style = styles[algo]
        _draw_seeds(axes, curve, style)
        axes.set_title(f"{name} ({_seeds(curve)})", loc="left", fontsize=10, color=INK)
        if (step := curve.steps[-1]) < longest:
            axes.annotate(
                f"ends at {_short(step)}", (step, _middles(curve)[-1]), (7, 0), textcoords="offset points",
                color=style["color"], fontsize=8, va="center", bbox={"color": "white", "alpha": 0.7, "pad": 1},
            )  # fmt: skip
        _finish_panel(axes, x_label="steps" if number + COLUMNS >= len(lines) else "")
        axes.tick_params(labelbottom=True)
    for axes in panels[len(lines) :]:
        axes.set_visible(False)


def _draw_seeds(axes: Axes, curve: Curve, style: Mapping[str, Any]) -> None:
    if len(curve.returns) > 1:
        by_step = zip(*curve.returns, strict=True)
        low, high = zip(*(bootstrap_interval(returns, resamples=1000) for returns in by_step), strict=True)
        axes.fill_between(curve.steps, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.plot(curve.steps, _middles(curve), linewidth=2, marker="o", markersize=3, markevery=[-1], **style)


def _middles(curve: Curve) -> list[float]:
    return [interquartile_mean(returns) for returns in zip(*curve.returns, strict=True)]


def _seeds(curve: Curve) -> str:
    return many(len(curve.returns), "seed")


def _caption(tasks: Mapping[str, Mapping[str, Curve]], separate: bool) -> str:
    several = any(len(curve.returns) > 1 for lines in tasks.values() for curve in lines.values())
    parts = ["line: interquartile mean over seeds", "band: its 95% bootstrap interval"] if several else []
    parts += ["grey: the other algorithms"] if separate else []
    return "; ".join(parts)


def _finish_panel(axes: Axes, x_label: str = "steps") -> None:
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.locator_params(axis="x", nbins=5)
    plain(axes)


def _draw_evaluations(axes: Axes, rows: list[Row]) -> None:
    """Draws mean returns with a band of one standard deviation, within the smallest and the largest return."""
    scores = [row["evaluation"] for row in rows]
    steps = [row["step"] for row in rows]
    means = [score["return_mean"] for score in scores]
    low = [max(s["return_mean"] - s["return_std"], min(s.get("returns", [-math.inf]))) for s in scores]
    high = [min(s["return_mean"] + s["return_std"], max(s.get("returns", [math.inf]))) for s in scores]
    label = f"evaluation, mean of {scores[-1]['episodes']} episodes"
    axes.plot(steps, means, color=EVALUATION, linewidth=2, marker="o", markersize=4, label=label)
    axes.fill_between(steps, low, high, color=EVALUATION, alpha=0.15, linewidth=0, label="± one standard deviation")


def title_style(size: int) -> dict[str, Any]:
    return {"loc": "left", "fontsize": size, "fontweight": "bold", "color": INK}


def plain(axes: Axes) -> None:
    """Applies the common style: light grid, no frame, short numbers (50k, 1M) below."""
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.margins(x=0.02)
    axes.grid(color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.10g}{unit}"
    return f"{value:,.10g}"
