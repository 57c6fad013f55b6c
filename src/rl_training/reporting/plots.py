"""A run as a picture: its return against the steps it took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

TRAINING, EVALUATION = "#9aa5b1", "#1f5fa8"  # what is beside the point in grey, the score itself in blue
INK = "#333333"


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
    from matplotlib.ticker import FuncFormatter

    offline = config.get("dataset") is not None
    algo = str(config["algo"]).upper().replace("_", "-")
    subject = config.get("env_id") or "data"
    axes.set_title(f"{algo} on {subject}", loc="left", fontsize=13, fontweight="bold", color=INK)
    axes.set_title(f"seed {config['seed']}", loc="right", fontsize=9, color=INK)
    axes.set_xlabel("gradient steps" if offline else "environment steps", color=INK)
    axes.set_ylabel("return (sum of an episode's rewards)", color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.margins(x=0.02)
    axes.grid(color="#e6e8eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color="#c5cad0", labelcolor=INK, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#c5cad0")
