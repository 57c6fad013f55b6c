"""Writes the tables of scores as Markdown: one per family, and what was not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from performance_page import table

from rl_training.statistics import Interval
from scores import references
from scores.references import Reference
from scores.rows import FAMILIES, NAMES, Row

ABBREVIATED = {"stable-baselines3": "SB3"}


def family_section(family: str, rows: Sequence[Row], note: str) -> str:
    title = FAMILIES[family][0]
    picture = f"![Scores of the {title.lower()} algorithms](pictures/scores_{family}.png)\n"
    parts = [f"### [{title}](families/{family}.md)\n", score_table(rows), note, picture]
    return "\n".join(part for part in parts if part)


def score_table(rows: Sequence[Row]) -> str:
    columns = {
        "task and config": [lines(", ".join(filter(None, (row.env, row.dataset))), config_cell(row)) for row in rows],
        "budget": [budget_cell(row) for row in rows],
        "every seed": [listed(row.seeds) for row in rows],
        "mean, then interquartile mean [95%]": [lines(*mean_cells(row)) for row in rows],
        "peer run here": [lines(*peer_cells(row)) for row in rows],
        "published": [lines(*published_cells(row)) for row in rows],
    }
    return markdown({title: cells for title, cells in columns.items() if any(cells)})


def lines(*parts: str) -> str:
    """The parts of a cell, one below the other."""
    return "<br>".join(parts)


def markdown(columns: dict[str, list[str]]) -> str:
    return table(list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)])


def config_cell(row: Row) -> str:
    name = f"`{row.config}`" if row.config else row.name
    setting = row.setting and row.setting.replace("stable-baselines3", "SB3")
    return ", ".join(filter(None, (name, setting)))


def budget_cell(row: Row) -> str:
    stopped = f" of {short(row.planned)}" if row.planned and row.budget < row.planned else ""
    return f"{short(row.budget)}{stopped} {row.unit}"


def mean_cells(row: Row) -> list[str]:
    training = [f"training {number(mean(row.training_returns))}"] if row.training_returns else []
    return [number(row.mean), middle_cell(row), *training]


def middle_cell(row: Row) -> str:
    return number(row.middle) if row.interval is None else bounded(row.middle, row.interval)


def bounded(value: float, interval: Interval) -> str:
    low, high = (number(bound, max(map(abs, interval))) for bound in interval)
    return f"{number(value, max(map(abs, interval)))} [{low}, {high}]"


def peer_cells(row: Row) -> list[str]:
    cells = [figure_cell(figure, row.budget) for figure in row.peer_figures()]
    if row.peer is not None:
        name = ABBREVIATED.get(row.peer.name, row.peer.name)
        cells += [f"{number(mean(row.peer.seeds))} ({name})", listed(row.peer.seeds)]
    return cells


def published_cells(row: Row) -> list[str]:
    gap = row.difference()
    difference = [] if gap is None else [f"difference {bounded(gap[0], gap[1])}"]
    return [*(figure_cell(figure, row.budget) for figure in row.published()), *difference]


def figure_cell(figure: Reference, budget: int) -> str:
    std = "" if figure.std is None else f" ± {number(figure.std)}"
    after = "" if figure.budget in (None, budget) else f" after {short(figure.budget)}"
    seeds = "" if figure.seeds is None else f"{figure.seeds} seed{'s' if figure.seeds > 1 else ''}"
    known = ", ".join(filter(None, (figure.source, figure.version, seeds, figure.measure)))
    return f"{number(figure.score)}{std}{after} ({known})"


def not_run(rows: Iterable[Row]) -> str:
    """Published budgets that no run here reached."""
    longest: dict[tuple[str, str, str | None], int] = {}
    for row in rows:
        longest[row.task] = max(row.budget, longest.get(row.task, 0))
    ends: dict[tuple[str, str, str | None], Reference] = {}
    for figure in references.published():  # the largest budget of the main source of each task
        held = ends.setdefault(figure.task, figure)
        if figure.source == held.source and (figure.budget or 0) > (held.budget or 0):
            ends[figure.task] = figure
    missing = [figure for figure in ends.values() if (figure.budget or 0) > longest.get(figure.task, 0)]
    return markdown({
        "algorithm": [NAMES.get(figure.algo, figure.algo.upper()) for figure in missing],
        "task": [", ".join(filter(None, (figure.env, figure.dataset))) for figure in missing],
        "published": [figure_cell(figure, 0) for figure in missing],
        "longest run here": [short(longest[each.task]) if each.task in longest else "not run" for each in missing],
    })  # fmt: skip


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def listed(scores: Sequence[float]) -> str:
    return " · ".join(number(score, max(map(abs, scores))) for score in scores)


def number(value: float, largest: float = 0.0) -> str:
    """`8,645` if it, or the largest of those beside it, is at least 1,000; else one decimal unless that is zero."""
    whole = max(abs(value), largest) >= 1000
    text = f"{value:,.0f}" if whole else f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def short(value: int | None) -> str:
    """`300k`, `1.5k`, `1M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value is not None and value >= size:
            return f"{value / size:g}{unit}"
    return str(value)
