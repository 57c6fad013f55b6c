"""Pictures of a study: the score of each trial, and the importance of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.reporting.plots import EVALUATION, INK, PALETTE, TRAINING, new_figure, plain

if TYPE_CHECKING:
    from rl_training.experiment.tuning.trial import TrialRun


def save_history(trials: Sequence[TrialRun], target: Path) -> Path | None:
    """Draws the score of every trial and the best so far; None if no trial has a score."""
    done = [(trial.number, trial.value) for trial in trials if trial.state == "done" and trial.value is not None]
    pruned = [(trial.number, trial.value) for trial in trials if trial.state == "pruned" and trial.value is not None]
    failed = [trial.number for trial in trials if trial.state == "failed"]
    if not done:
        return None
    figure = new_figure(8, 4.4)
    axes = figure.add_subplot()
    numbers, values = zip(*done, strict=True)
    best, last = list(accumulate(values, max)), max(*numbers, *(number for number, _ in pruned), *failed, 1)
    axes.step([*numbers, last], [*best, best[-1]], where="post", color=PALETTE[1], linewidth=1.5, label="best so far")
    axes.plot(numbers, values, "o", color=EVALUATION, markersize=5, label="trained to the end")
    if pruned:
        axes.plot(*zip(*pruned, strict=True), "v", color=TRAINING, markersize=5, label="pruned (last evaluation)")
    if failed:
        axes.plot(failed, [0.02] * len(failed), "x", color=INK, transform=axes.get_xaxis_transform(), label="failed")
    axes.set_xlabel("trial", color=INK)
    axes.set_ylabel("mean return over seeds", color=INK)
    plain(axes)
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]  # MaxNLocator takes it
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, labelcolor=INK)
    figure.savefig(target)
    return target


def save_importance(importance: Mapping[str, float], target: Path) -> Path | None:
    """Draws the importance of each key as bars; None if there were too few trials to estimate it."""
    if not importance:
        return None
    figure = new_figure(7, 0.42 * len(importance) + 1.2)
    axes = figure.add_subplot()
    names = list(importance)
    axes.barh(range(len(names)), list(importance.values()), color=PALETTE[0], height=0.6)
    plain(axes)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("importance for the best scores (PED-ANOVA)", fontsize=9, color=INK)
    figure.savefig(target)
    return target
