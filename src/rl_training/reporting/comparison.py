"""Scores with intervals for each algorithm and task, and pairwise comparisons, of benchmarks and of single runs."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from rl_training import statistics
from rl_training.data import normalized_score
from rl_training.reporting.grouping import Group, group_runs
from rl_training.statistics import Interval

SEEDS_NEEDED = "seeds to show it"
MOST_SEEDS = 1000  # the estimate is not printed above this
CSV_COLUMNS = (
    "algo", "env", "dataset", "seed", "score", "normalized_score", "steps", "updates", "seconds", "commit",
    "config_hash",
)  # fmt: skip


class Entry(NamedTuple):
    algo: str
    scores: list[float]  # mean return of each seed's last checkpoint
    middle: float  # interquartile mean of the scores
    interval: Interval | None  # None with one seed
    normalized: float | None
    normalized_interval: Interval | None


class Pair(NamedTuple):
    a: str
    b: str
    probability: float  # that a run of a scores above a run of b
    interval: Interval | None  # None if one of them has one seed
    difference: float  # of the means
    seeds_needed: int | None


class Task(NamedTuple):
    name: str  # the environment, and the dataset if there is one
    entries: list[Entry]
    pairs: list[Pair]


class Curve(NamedTuple):
    steps: list[int]
    returns: list[list[float]]  # [seeds][steps]


class Comparison(NamedTuple):
    tasks: list[Task]
    missing: list[str]  # cells that are not done
    results: list[dict[str, Any]]  # `result.json` of the finished cells, and the same for groups of runs
    groups: list[Group]
    left_out: list[str]  # runs without a score, with the reason
    notes: list[str]  # warnings about the comparison

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": [_task_json(task) for task in self.tasks], "missing": self.missing,
            "groups": [group.to_json() for group in self.groups], "left_out": self.left_out, "notes": self.notes,
        }  # fmt: skip


def compare(*paths: Path | str, by: Sequence[str] = ()) -> Comparison:
    """Compares benches, runs, folders of runs, and patterns of those.

    The score of a run outside a bench is its last evaluation in training. Runs are grouped by algorithm, environment,
    dataset and the options in which they differ, or only by the options in `by`.
    """
    found = group_runs([str(path) for path in paths], by)
    if not found.groups:
        names = ", ".join(map(str, paths))
        if found.left_out:
            raise ValueError(f"no run of {names} has a score: {', '.join(found.left_out[:3])}")
        raise ValueError(f"no cell of {names} is done yet. Run them with rl-training bench")
    results = [group.cell for group in found.groups]
    tasks = [task_of(name, cells) for name, cells in by_task(results).items()]
    return Comparison(tasks, found.missing, results, found.groups, found.left_out, found.notes)


def by_task(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        name = result["env"] if result["dataset"] is None else f"{result['env']} from {Path(result['dataset']).stem}"
        tasks.setdefault(name, []).append(result)
    return tasks


def task_of(name: str, results: Sequence[Mapping[str, Any]]) -> Task:
    """Scores and pairwise comparisons of the results of one task."""
    entries = [_entry(result) for result in results]
    return Task(name, entries, [_pair(a, b) for a, b in combinations(entries, 2)])


def _entry(result: Mapping[str, Any]) -> Entry:
    scores = [run["score"]["return_mean"] for run in result["runs"]]
    middle = statistics.interquartile_mean(scores)
    interval = statistics.bootstrap_interval(scores) if len(scores) > 1 else None
    # Normalisation is linear, so it maps the interquartile mean and its bounds directly.
    normal, *bounds = (normalized_score(result["env"], value) for value in (middle, *(interval or ())))
    known = [bound for bound in bounds if bound is not None]
    return Entry(result["algo"], scores, middle, interval, normal, Interval(*known) if known else None)


def _pair(a: Entry, b: Entry) -> Pair:
    difference = sum(a.scores) / len(a.scores) - sum(b.scores) / len(b.scores)
    probability = statistics.probability_of_improvement(a.scores, b.scores)
    interval = statistics.improvement_interval(a.scores, b.scores) if a.interval and b.interval else None
    return Pair(a.algo, b.algo, probability, interval, difference, statistics.seeds_needed(a.scores, b.scores))


def _task_json(task: Task) -> dict[str, Any]:
    entries = [{"algo": entry.algo, "seeds": len(entry.scores), "interquartile_mean": entry.middle,
                "interval_95": entry.interval and list(entry.interval), "normalized_score": entry.normalized,
                "normalized_interval_95": entry.normalized_interval and list(entry.normalized_interval),
                "scores": entry.scores} for entry in task.entries]  # fmt: skip
    pairs = [{"a": pair.a, "b": pair.b, "probability_of_improvement": pair.probability,
              "interval_95": pair.interval and list(pair.interval), "difference_of_means": pair.difference,
              "seeds_needed": pair.seeds_needed} for pair in task.pairs]  # fmt: skip
    return {"env": task.name, "algorithms": entries, "pairs": pairs}


class Rows(NamedTuple):
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def score_table(comparison: Comparison) -> Rows:
    bounds = _bounds(entry.interval for task in comparison.tasks for entry in task.entries)
    columns = ("environment", "algorithm", "seeds", f"score{bounds}", f"normalized{bounds}")
    rows = [
        (task.name, entry.algo, str(len(entry.scores)), _bounded(entry.middle, entry.interval, 1),
         _bounded(entry.normalized, entry.normalized_interval, 1))
        for task in comparison.tasks for entry in task.entries
    ]  # fmt: skip
    return _without_empty_last(Rows(columns, rows))


def _seeds_words(seeds: int | None) -> str:
    if seeds is None:
        return ""
    return f"about {seeds:,} each" if seeds <= MOST_SEEDS else f"more than {MOST_SEEDS:,} seeds would be needed"


def pair_table(comparison: Comparison) -> Rows:
    bounds = _bounds(pair.interval for task in comparison.tasks for pair in task.pairs)
    columns = ("environment", "better?", f"probability{bounds}", "difference of means", SEEDS_NEEDED)
    rows = [
        (task.name, f"{pair.a} over {pair.b}", _bounded(pair.probability, pair.interval, 2), f"{pair.difference:+,.1f}",
         _seeds_words(pair.seeds_needed))
        for task in comparison.tasks for pair in task.pairs
    ]  # fmt: skip
    return _without_empty_last(Rows(columns, rows))


def _without_empty_last(table: Rows) -> Rows:
    """Drops the last column if it is empty in every row."""
    return table if any(row[-1] for row in table.rows) else Rows(table.columns[:-1], [row[:-1] for row in table.rows])


def _bounds(intervals: Iterable[Interval | None]) -> str:
    return " [95%]" if any(intervals) else ""


def _bounded(value: float | None, interval: Interval | None, digits: int) -> str:
    if value is None:
        return ""
    bounds = "" if interval is None else f" [{interval.low:,.{digits}f}, {interval.high:,.{digits}f}]"
    return f"{value:,.{digits}f}{bounds}"


def markdown(comparison: Comparison) -> str:
    tables = [table for table in (score_table(comparison), pair_table(comparison)) if table.rows]
    lines = [[table.columns, ("---",) * len(table.columns), *table.rows] for table in tables]
    return "\n".join("".join(f"| {' | '.join(line)} |\n" for line in table) for table in lines)


def save_csv(comparison: Comparison, target: Path) -> None:
    """Writes one row for each run."""
    with target.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, CSV_COLUMNS, extrasaction="ignore")
        table.writeheader()
        for cell in comparison.results:
            for run in cell["runs"]:
                score = run["score"]
                named = {"algo": cell["algo"], "env": cell["env"], "dataset": cell["dataset"],
                         "score": score["return_mean"], "normalized_score": score.get("normalized_score")}  # fmt: skip
                table.writerow({**run, **named})


def learning_curves(comparison: Comparison) -> dict[str, dict[str, Curve]]:
    """Curves by task and algorithm, at the steps where every seed was evaluated. Others are left out."""
    return {
        name: {cell["algo"]: curve for cell in cells if (curve := _curve(cell)).steps}
        for name, cells in by_task(comparison.results).items()
    }


def _curve(cell: Mapping[str, Any]) -> Curve:
    seeds = [{int(step): float(value) for step, value in run["curve"]} for run in cell["runs"]]
    steps = sorted(set.intersection(*(set(seed) for seed in seeds)))
    return Curve(steps, [[seed[step] for step in steps] for seed in seeds])
