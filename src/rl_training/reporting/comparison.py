"""Scores with intervals for each algorithm and task, and pairwise comparisons, of benchmarks and of single runs."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from rl_training import statistics
from rl_training.data import normalized_score
from rl_training.experiment.bench.scores import is_estimate, value_of
from rl_training.messages import return_format
from rl_training.reporting.comparability import comparability_notes
from rl_training.reporting.grouping import Group, group_runs
from rl_training.reporting.tasks import PLAYED_NOTE, data_names, estimate_interval, name_of
from rl_training.statistics import Interval

SEEDS_NEEDED = "seeds needed"
INSEPARABLE = "the data cannot separate them: intervals overlap"
MOST_SEEDS = 1000  # the estimate is not printed above this
CSV_COLUMNS = (
    "algo", "env", "dataset", "seed", "score", "normalized_score", "steps", "updates", "seconds", "commit",
    "config_hash", "score_kind", "low", "high", "warnings",
)  # fmt: skip


class Entry(NamedTuple):
    algo: str
    scores: list[float]  # mean return, or estimate, of each seed's last checkpoint
    middle: float  # interquartile mean of the scores
    interval: Interval | None  # None with one seed, unless the scores are estimates
    normalized: float | None
    normalized_interval: Interval | None
    warnings: list[str] | None = None  # of estimates; None for returns of played episodes


class Pair(NamedTuple):
    a: str
    b: str
    probability: float  # that a run of a scores above a run of b
    interval: Interval | None  # None if one of them has one seed
    difference: float  # of the means
    seeds_needed: int | None
    intervals_overlap: bool | None = None  # of estimates; None for returns of played episodes


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
    left_out: list[str]  # runs that have not finished or were never evaluated, with the reason
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
            raise ValueError(
                f"no run of {names} has finished with a score: {', '.join(found.left_out[:3])}; a finished run has one "
                "if it is evaluated in training (eval_interval above 0) or by `rl-training bench`"
            )
        raise ValueError(f"no cell of {names} is done yet. Run them with rl-training bench")
    results = [group.cell for group in found.groups]
    tasks = [task_of(name, cells) for name, cells in by_task(results).items()]
    unequal = [note for name, cells in by_task(results).items() for note in comparability_notes(name, cells)]
    sources = dict.fromkeys(result["test"] for result in results if result.get("test") is not None)
    estimates = [f"scores are {PLAYED_NOTE.format(source)}" for source in sources]
    return Comparison(tasks, found.missing, results, found.groups, found.left_out, [*found.notes, *unequal, *estimates])


def by_task(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    tasks: dict[str, list[Mapping[str, Any]]] = {}
    names = data_names(results)
    for result in results:
        tasks.setdefault(name_of(result, names), []).append(result)
    return tasks


def task_of(name: str, results: Sequence[Mapping[str, Any]]) -> Task:
    """Scores and pairwise comparisons of the results of one task."""
    entries = [_entry(result) for result in results]
    return Task(name, entries, [_pair(a, b) for a, b in combinations(entries, 2)])


def _entry(result: Mapping[str, Any]) -> Entry:
    stored = [run["score"] for run in result["runs"]]
    scores = [value_of(score) for score in stored]
    middle = statistics.interquartile_mean(scores)
    if is_estimate(stored[0]):
        warnings = list(dict.fromkeys(text for score in stored for text in score["warnings"]))
        return Entry(result["algo"], scores, middle, estimate_interval(stored), None, None, warnings)
    interval = statistics.bootstrap_interval(scores) if len(scores) > 1 else None
    # Normalisation is linear, so it maps the interquartile mean and its bounds directly.
    normal, *bounds = (normalized_score(result["env"], value) for value in (middle, *(interval or ())))
    known = [bound for bound in bounds if bound is not None]
    return Entry(result["algo"], scores, middle, interval, normal, Interval(*known) if known else None)


def _pair(a: Entry, b: Entry) -> Pair:
    difference = sum(a.scores) / len(a.scores) - sum(b.scores) / len(b.scores)
    probability = statistics.probability_of_improvement(a.scores, b.scores)
    several = len(a.scores) > 1 and len(b.scores) > 1
    interval = statistics.improvement_interval(a.scores, b.scores) if several else None
    seeds = statistics.seeds_needed(a.scores, b.scores)
    overlaps = None
    if a.warnings is not None and b.warnings is not None and a.interval and b.interval:
        overlaps = a.interval.overlaps(b.interval)
    return Pair(a.algo, b.algo, probability, interval, difference, seeds, overlaps)


def _task_json(task: Task) -> dict[str, Any]:
    entries = [{"algo": entry.algo, "seeds": len(entry.scores), "interquartile_mean": entry.middle,
                "interval_95": entry.interval and list(entry.interval), "normalized_score": entry.normalized,
                "normalized_interval_95": entry.normalized_interval and list(entry.normalized_interval),
                "scores": entry.scores, "estimated": entry.warnings is not None, "warnings": entry.warnings or []}
               for entry in task.entries]  # fmt: skip
    pairs = [{"a": pair.a, "b": pair.b, "probability_of_improvement": pair.probability,
              "interval_95": pair.interval and list(pair.interval), "difference_of_means": pair.difference,
              "seeds_needed": pair.seeds_needed, "intervals_overlap": pair.intervals_overlap}
             for pair in task.pairs]  # fmt: skip
    return {"env": task.name, "algorithms": entries, "pairs": pairs}


class Rows(NamedTuple):
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def score_table(comparison: Comparison) -> Rows:
    entries = [(task.name, entry) for task in comparison.tasks for entry in _best_estimates_first(task.entries)]
    bounds = _bounds(entry.interval for _, entry in entries)
    score = "estimate" if all(entry.warnings is not None for _, entry in entries) else "score"
    columns = ("environment", "algorithm", "seeds", f"{score}{bounds}", f"normalized{bounds}", "warnings")
    rows = [
        (name, entry.algo, str(len(entry.scores)), _bounded(entry.middle, entry.interval),
         _bounded(entry.normalized, entry.normalized_interval, ".1f"), str(len(entry.warnings or []) or ""))
        for name, entry in entries
    ]  # fmt: skip
    return _without_empty(Rows(columns, rows))


def _best_estimates_first(entries: Sequence[Entry]) -> list[Entry]:
    """Sorts estimates, which are there to choose from; played scores keep the order of the plan."""
    return sorted(entries, key=lambda entry: 0.0 if entry.warnings is None else -entry.middle)


def _seeds_words(seeds: int | None) -> str:
    if seeds is None:
        return ""
    return f"about {seeds:,} each" if seeds <= MOST_SEEDS else f"more than {MOST_SEEDS:,} seeds would be needed"


def pair_table(comparison: Comparison) -> Rows:
    bounds = _bounds(pair.interval for task in comparison.tasks for pair in task.pairs)
    probability = f"P(improvement){bounds}"
    columns = ("environment", "comparison", probability, "difference of means", SEEDS_NEEDED, "by the data")
    rows = [(task.name, *_pair_cells(pair)) for task in comparison.tasks for pair in task.pairs]
    return _without_empty(Rows(columns, rows))


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    """For estimates, intervals decide: probabilities over seeds would leave out the error of the data."""
    name, difference = f"{pair.a} over {pair.b}", f"{pair.difference:+,{return_format(pair.difference)}}"
    if pair.intervals_overlap is None:
        probability = _bounded(pair.probability, pair.interval, ".2f")
        return name, probability, difference, _seeds_words(pair.seeds_needed), ""
    return name, "", difference, "", INSEPARABLE if pair.intervals_overlap else "separated"


def _without_empty(table: Rows) -> Rows:
    """Drops columns that are empty in every row."""
    kept = [number for number in range(len(table.columns)) if any(row[number] for row in table.rows)]
    return Rows(tuple(table.columns[n] for n in kept), [tuple(row[n] for n in kept) for row in table.rows])


def _bounds(intervals: Iterable[Interval | None]) -> str:
    return " [95%]" if any(intervals) else ""


def _bounded(value: float | None, interval: Interval | None, digits: str | None = None) -> str:
    """`digits` is the format of both, that of returns by default."""
    if value is None:
        return ""
    digits = digits or return_format(value, *(interval or ()))
    bounds = "" if interval is None else f" [{interval.low:,{digits}}, {interval.high:,{digits}}]"
    return f"{value:,{digits}}{bounds}"


def behaviour_lines(comparison: Comparison) -> list[str]:
    """The return of the policy that recorded the test data, beside which estimates are read."""
    tested = [(result["test"], result["runs"][0]["score"]) for result in comparison.results if result.get("test")]
    lines = []
    for source, score in tested:
        bounds = score.get("behaviour_interval")
        returned = _bounded(score["behaviour_return"], None if bounds is None else Interval(*bounds))
        lines.append(f"{returned} is the return of the policy that recorded {source}, with the same discount")
    return list(dict.fromkeys(lines))


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
                low, high = score["interval"] if is_estimate(score) else (None, None)
                named = {"algo": cell["algo"], "env": cell["env"], "dataset": cell["dataset"],
                         "score": value_of(score), "normalized_score": score.get("normalized_score"),
                         "score_kind": "ope" if is_estimate(score) else "episodes", "low": low, "high": high,
                         "warnings": "; ".join(score.get("warnings", []))}  # fmt: skip
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
