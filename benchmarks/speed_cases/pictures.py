"""Pictures of stored speeds: ratios to the peers as bars, and growth as lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rl_training.reporting.plots import INK, PALETTE, new_figure, plain

COLUMNS = 3
LABELS = {"batch size": "updates a second", "width": "updates a second", "rows": "updates a second",
          "seeds": "seed-updates a second", "environments": "steps a second"}  # fmt: skip
TICKS = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]


def draw_ratios(result: dict[str, Any], path: Path) -> Path:
    """One group of bars for each training: how many times as fast as each peer, with the smallest and largest."""
    trainings = {name: each for name, each in result["trainings"].items() if each["ratios"]}
    peers = list(dict.fromkeys(peer for each in trainings.values() for peer in each["ratios"]))
    bars = [(name, peer) for name, each in trainings.items() for peer in each["ratios"]]
    places, labels, place = [], [], 0.0
    for number, (name, _) in enumerate(bars):
        place += 1.6 if number and bars[number - 1][0] != name else 1.0
        places.append(place)
    figure = new_figure(8, 0.8 + 0.32 * (len(bars) + 0.6 * len(trainings)))
    axes = figure.add_subplot()
    plain(axes)
    for at, (name, peer) in zip(places, bars, strict=True):
        ratio = trainings[name]["ratios"][peer]
        spread = [[ratio["median"] - ratio["min"]], [ratio["max"] - ratio["median"]]]
        colour = PALETTE[peers.index(peer) % len(PALETTE)]
        axes.barh(at, ratio["median"], height=0.8, color=colour, xerr=spread, error_kw={"ecolor": INK, "capsize": 2})
        axes.annotate(f"{ratio['median']:.1f}x", (ratio["max"], at), (6, 0), textcoords="offset points", va="center")
        labels.append(peer)
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", length=0)
    for name, each in trainings.items():
        first = next(at for at, bar in zip(places, bars, strict=True) if bar[0] == name)
        axes.annotate(each["what"], (0, first - 0.75), (2, 0), textcoords="offset points", va="center", weight="bold")
    axes.axvline(1, color=INK, linewidth=1, zorder=0.9)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(max(places) + 0.7, min(places) - 1.3)
    axes.set_xlim(0, 1.12 * max(each["max"] for one in trainings.values() for each in one["ratios"].values()))
    axes.set_xlabel("times as fast as the peer, whole training after the start (1: equal)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def draw_growth(result: dict[str, Any], path: Path) -> Path:
    """One panel for each quantity, both axes logarithmic."""
    panels = {name: found for name, found in result["rates"].items() if len(found) > 1}
    rows = math.ceil(len(panels) / COLUMNS)
    figure = new_figure(10, 3.0 * rows + 0.3)
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axes, (name, found) in zip(grid, panels.items(), strict=False):
        values, rates = [int(value) for value in found], list(found.values())
        axes.plot(values, rates, color=PALETTE[0], marker="o", markersize=4)
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel=LABELS[name], ylim=(min(rates) / 2, 2 * max(rates)))
        plain(axes)
        axes.set_xticks(values, [short_number(value) for value in values])
        marks = [mark for mark in TICKS if min(rates) / 2 <= mark <= 2 * max(rates)]
        few = marks[:: math.ceil(len(marks) / 5)]
        axes.set_yticks(few, [short_number(mark) for mark in few])
        axes.minorticks_off()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(f"{result['what']}: {result['hardware']}" if "hardware" in result else result["what"], fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def short_number(value: int) -> str:
    if value >= 1_000_000:
        return f"{value // 1_000_000:,}M"
    return f"{value // 1000:,}k" if value >= 10_000 else f"{value:,}"
