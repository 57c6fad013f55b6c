"""The ranking of several runs by `evaluate RUN RUN --ope DATASET`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.output import print_facts, print_json, print_table, print_wrapped, stdout_for_results
from rl_training.messages import OPE_CAUTION, many

if TYPE_CHECKING:
    from rl_training.experiment.ope.runs import RankedRun, Ranking


def rank(runs: Sequence[Path], source: str, as_json: bool, **options: Any) -> None:
    """Prints off-policy estimates of several runs, best first."""
    with stdout_for_results():
        import torch

        from rl_training.experiment.ope.runs import rank_runs
        from rl_training.runtime.callbacks.progress import ShowProgress

        torch.set_num_threads(1)  # as in training: results do not depend on the number of cores
        found = rank_runs(runs, source, callbacks=[ShowProgress()], **options)
    if as_json:
        print_json({"dataset": source, **found.to_json()})
    else:
        print_ranking(found)


def print_ranking(found: Ranking) -> None:
    print_table(*ranking_table(found))
    print_wrapped("", verdict(found))
    behaviour = with_interval(found.behaviour_return, found.behaviour_interval)
    print_facts(
        {
            "behaviour": f"{behaviour} over {many(found.episodes, 'episode')}, discounted by {found.discount}; "
            f"undiscounted mean {found.behaviour_undiscounted_return:.5g}",
        }
    )
    for note in found.notes:
        print_wrapped("note        ", note)
    reasons = numbered([reasons_of(run) for run in found.runs])
    for kind, texts in (("note", reasons), ("warning", numbered([run.warnings for run in found.runs]))):
        for text, numbers in texts.items():
            runs = "all runs" if len(numbers) == len(found.runs) else listed(numbers)
            print_wrapped(f"{kind:<12}", f"{runs}: {text}")
    print_wrapped("caution     ", OPE_CAUTION)


def ranking_table(found: Ranking) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    names = other_estimators(found)
    marked = any(run.seen.is_training_data for run in found.runs)
    columns = ("", "run", *(["data"] if marked else []), "estimate [95%]", *names, "unseen actions", "overlaps with",
               "warnings")  # fmt: skip
    rows = []
    for number, run in enumerate(found.runs, 1):
        data = ["of its training" if run.seen.is_training_data else ""] if marked else []
        rows.append((str(number), str(run.found.run_dir), *data, *estimate_cells(run, names)))
    return columns, rows


def estimate_cells(run: RankedRun, names: Sequence[str]) -> tuple[str, ...]:
    each, (low, high) = run.found, run.found.interval
    values = (each.estimates[name].estimate if name in each.estimates else None for name in names)
    return (
        f"{each.estimate:.5g} [{low:.5g}, {high:.5g}]", *("" if value is None else f"{value:.5g}" for value in values),
        f"{each.facts['unseen_actions']:.0%}", ", ".join(str(other + 1) for other in run.overlaps),
        str(len(run.warnings) or ""),
    )  # fmt: skip


def verdict(found: Ranking) -> str:
    best = found.runs[0]
    if len(found.runs) == 1:
        return "one run can be compared with the behaviour policy only"
    if not best.overlaps:
        return "run 1 is the best by these estimates: its interval lies above all others"
    others = listed([number + 1 for number in best.overlaps])
    return f"the data cannot separate run 1 from {others}: their 95% intervals overlap"


def other_estimators(found: Ranking) -> list[str]:
    """Estimators that have values other than the estimate itself."""
    names = dict.fromkeys(name for run in found.runs for name in run.found.estimates)
    return [name for name in names if any(differs(run, name) for run in found.runs)]


def differs(run: RankedRun, name: str) -> bool:
    each = run.found.estimates.get(name)
    return each is not None and each.estimate not in (None, run.found.estimate)


def reasons_of(run: RankedRun) -> list[str]:
    """Why estimators have no value, one sentence for those with the same reason."""
    names: dict[str, list[str]] = {}
    for name, each in run.found.estimates.items():
        if each.estimate is None and each.reason is not None:
            names.setdefault(each.reason, []).append(name)
    return [f"no {' or '.join(each)}: {reason}" for reason, each in names.items()]


def numbered(texts: Iterable[Sequence[str]]) -> dict[str, list[int]]:
    """Each text with the numbers of its runs, from 1."""
    found: dict[str, list[int]] = {}
    for number, each in enumerate(texts, 1):
        for text in each:
            found.setdefault(text, []).append(number)
    return found


def listed(numbers: Sequence[int]) -> str:
    """`run 2`, or `runs 2, 3 and 5`."""
    *first, last = map(str, numbers)
    return f"runs {', '.join(first)} and {last}" if first else f"run {last}"


def with_interval(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.5g}" if interval is None else f"{value:.5g} (95% interval {interval[0]:.5g} to {interval[1]:.5g})"
