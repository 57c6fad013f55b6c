"""The tables of scores, pairs and runs of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from rl_training.messages import seed_ranges
from rl_training.reporting.comparison import INSEPARABLE, MOST_SEEDS, Entry, Pair
from rl_training.reporting.report.groups import Gathered, Member, ReportGroup
from rl_training.reporting.report.machines import member_seconds
from rl_training.reporting.report.scores import ScoredTask
from rl_training.reporting.report.texts import decimals, duration_text, interval_text, number_text, short_text
from rl_training.reporting.stored_runs import progress_text
from rl_training.reporting.tasks import PLAYED_NOTE

MARGIN = 4.0  # per cent of the width of a picture in a table
FEW_SEEDS = 4  # up to which an interval is too narrow
STATES = ("finished", "early_stop", "training", "stopped", "incomplete", "failed")
WORDS = {"early_stop": "stopped early"}


class Marks(NamedTuple):
    """Positions in the picture of a score, in per cent."""

    middle: float
    low: float | None
    high: float | None
    seeds: list[float]


class SummaryRow(NamedTuple):
    number: int
    label: str
    seeds: str
    counted: int  # seeds in the score
    score: str
    interval: str
    normalized: str
    marks: Marks | None
    states: str
    notes: list[str]


class PairRow(NamedTuple):
    task: str
    a: str
    b: str
    probability: str
    interval: str
    difference: str
    seeds_needed: str
    is_clear: bool


def summary_rows(task: ScoredTask) -> list[SummaryRow]:
    return [_row(group, entry, task.bounds) for group, entry in task.groups]


def _row(group: ReportGroup, entry: Entry | None, bounds: tuple[float, float] | None) -> SummaryRow:
    seeds, states = seed_ranges([member.seed for member in group.members]), states_text(group.members)
    if entry is None or bounds is None:
        return SummaryRow(group.number, group.label, seeds, 0, "", "", "", None, states, _without_score(group))
    digits = decimals(bounds)
    return SummaryRow(
        group.number, group.label, seeds, len(entry.scores), number_text(entry.middle, digits),
        "" if entry.interval is None else interval_text(entry.interval, digits),
        "" if entry.normalized is None else number_text(entry.normalized, 1),
        _marks(entry, *bounds), states, _notes(group),
    )  # fmt: skip


def _marks(entry: Entry, low: float, high: float) -> Marks:
    def place(value: float) -> float:
        share = 0.5 if high == low else (value - low) / (high - low)
        return round(MARGIN + (100 - 2 * MARGIN) * share, 2)

    seeds = [place(score) for score in entry.scores]
    if entry.interval is None:
        return Marks(place(entry.middle), None, None, seeds)
    return Marks(place(entry.middle), place(entry.interval.low), place(entry.interval.high), seeds)


def _without_score(group: ReportGroup) -> list[str]:
    returns = [member.training[-1][1] for member in group.members if member.training]
    if not returns:
        return ["no episode has finished yet"] if group.dataset is None else ["no evaluations"]
    mean = number_text(sum(returns) / len(returns))
    return [f"no evaluations; mean return of the last training episodes: {mean}"]


def _notes(group: ReportGroup) -> list[str]:
    counted, notes = group.counted, _estimate_notes(group)
    if group.is_preliminary:
        steps = min(member.step for member in counted)
        notes.append(f"so far, at step {steps:,}: no seed has finished")
    elif left_out := [member.seed for member in group.members if member not in counted]:
        words = "seed {}, which has" if len(left_out) == 1 else "seeds {}, which have"
        notes.append(f"without {words.format(seed_ranges(left_out))} no final score")
    if any(member.estimate is not None for member in counted):
        return notes
    if len(counted) == 1:
        notes.append("one seed: no interval")
    elif len(counted) <= FEW_SEEDS:
        notes.append(f"{len(counted)} seeds: the interval is too narrow")
    return notes


def _estimate_notes(group: ReportGroup) -> list[str]:
    estimates = [member.estimate for member in group.counted if member.estimate is not None]
    if not estimates:
        return []
    warnings = {short_text(str(text)) for each in estimates for text in each.get("warnings") or []}
    source = short_text(str(estimates[0].get("dataset", "data")))
    return [PLAYED_NOTE.format(source), *sorted(f"warning: {text}" for text in warnings)]


def states_text(members: Sequence[Member]) -> str:
    counts = Counter(member.status for member in members)
    known = [state for state in STATES if counts[state]] + [state for state in counts if state not in STATES]
    return ", ".join(f"{counts[state]} {WORDS.get(state, state)}{_progress(state, members)}" for state in known)


def _progress(state: str, members: Sequence[Member]) -> str:
    running = [member.step / member.total_steps for member in members if member.status == state and member.total_steps]
    return f" ({sum(running) / len(running):.0%})" if state == "training" and running else ""


def pair_rows(tasks: Sequence[ScoredTask]) -> list[PairRow]:
    return [
        PairRow(task.name, pair.a, pair.b, *_probability(pair), _difference(pair), *_evidence(pair))
        for task in tasks for pair in task.pairs
    ]  # fmt: skip


def _probability(pair: Pair) -> tuple[str, str]:
    """The probability and its interval; for estimates, whether their intervals overlap."""
    if pair.intervals_overlap is not None:
        return "", INSEPARABLE if pair.intervals_overlap else "intervals do not overlap"
    bounds = "" if pair.interval is None else f"{pair.interval.low:.2f} to {pair.interval.high:.2f}"
    return number_text(pair.probability, 2), bounds


def _difference(pair: Pair) -> str:
    return f"{pair.difference:+,.1f}" if abs(pair.difference) >= 1 else f"{pair.difference:+.3g}"


def _evidence(pair: Pair) -> tuple[str, bool]:
    """The seeds needed, and whether the difference is clear."""
    if pair.intervals_overlap is not None:
        return "", not pair.intervals_overlap
    clear = pair.interval is not None and not pair.interval.low <= 0.5 <= pair.interval.high
    seeds = pair.seeds_needed
    needed = "" if seeds is None else f"about {seeds:,}" if seeds <= MOST_SEEDS else f"more than {MOST_SEEDS:,}"
    return needed, clear


def run_rows(gathered: Gathered) -> list[dict[str, Any]]:
    return [
        {
            "number": group.number, "seed": member.seed, "path": str(member.path),
            "status": WORDS.get(member.status, member.status),
            "progress": progress_text(member.step, member.total_steps), "last": _last(member),
            "best": number_text(max(value for _, value in member.evaluations)) if member.evaluations else "",
            "seconds": duration_text(member_seconds(member)),
        }
        for group in gathered.groups for member in group.members
    ]  # fmt: skip


def _last(member: Member) -> str:
    """Prefers evaluations in training to the bench's score, because the best return is one of them."""
    if member.last_evaluation is not None:
        return number_text(member.last_evaluation)
    if member.score is not None:
        return number_text(member.score)
    return f"{number_text(member.training[-1][1])} (training)" if member.training else ""
