"""Output of `tune`: the trials while they run, then a table, pictures or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rl_training.cli.output import print_facts, print_json, print_table
from rl_training.cli.watching import live_table, watching
from rl_training.experiment.tuning.space import describe_params, shown_value
from rl_training.experiment.user_errors import message_of
from rl_training.messages import command, return_format, seeds_text

if TYPE_CHECKING:
    from rich.table import Table

    from rl_training.experiment.tuning.final import Final, Score
    from rl_training.experiment.tuning.trial import TrialRun
    from rl_training.experiment.tuning.tuning import Tuning, Watch

SHOWN = 5  # trials in the table of the best
ENDED = ("done", "pruned", "failed")
RUNNING = ("queued", "running")


def watching_trials(trials: Sequence[TrialRun]) -> AbstractContextManager[Watch]:
    """Yields a function that shows the trials on stderr while they run."""
    ended = [trial for trial in trials if trial.state in ENDED]
    if ended and not sys.stderr.isatty():
        typer.echo(f"{len(ended)} of {len(trials)} trials ended earlier", err=True)
    return watching(trials, line=line, progress=progress, table=table, ended=ended)


def shown_return(value: float | None) -> str:
    return "" if value is None else f"{value:,{return_format(value)}}"


def line(trial: TrialRun) -> str:
    details = {
        "done": f"return {shown_return(trial.value)}" if trial.value is not None else "",
        "pruned": f"return {shown_return(trial.value)} at step {trial.step:,}" if trial.value is not None else "",
        "failed": trial.error,
        "running": describe_params(trial.params),
    }.get(trial.state)
    return f"trial {trial.number}: {trial.state}{f', {details}' if details else ''}"


def table(trials: Sequence[TrialRun], left: str) -> Table:
    """The running trials and the best ones."""
    title = f"{sum(trial.state in ENDED for trial in trials)} of {len(trials)} trials ended{left}"
    shown = [*(trial for trial in trials if trial.state in RUNNING), *best_trials(trials)]
    columns = ("trial", "state", "progress", "return", "values")
    return live_table(title, columns, [row(trial) for trial in shown], right=("progress", "return"))


def row(trial: TrialRun) -> tuple[str, ...]:
    value = shown_return(trial.value)
    return str(trial.number), trial.state, f"{progress(trial):.0%}", value, describe_params(trial.params)


def progress(trial: TrialRun) -> float:
    return 1.0 if trial.state in ENDED else min(1.0, max(0, trial.step) / trial.steps)


def best_trials(trials: Sequence[TrialRun]) -> list[TrialRun]:
    done = [trial for trial in trials if trial.state == "done"]
    return sorted(done, key=lambda trial: (-(trial.value or 0.0), trial.number))[:SHOWN]


def finish(study: Tuning, *, as_json: bool) -> None:
    pictures = draw(study)
    if as_json:
        print_json(report(study) | {name: str(file) for name, file in pictures.items()})
        return
    shown = best_trials(study.trials)
    if shown:
        keys = list(shown[0].params)
        rows = [
            (str(trial.number), shown_return(trial.value), *(shown_value(trial.params[key]) for key in keys))
            for trial in shown
        ]
        print_table(("trial", "return", *keys), rows)
    counts = {state: sum(trial.state == state for trial in study.trials) for state in ENDED}
    waiting = len(study.trials) - sum(counts.values())
    named = [f"{count} {state}" for state, count in counts.items() if count]
    final = study.final
    print_facts({
        "trials": ", ".join([*named, *([f"{waiting} to do"] if waiting else [])]),
        "score": None if final is None else _score(final.best), "untuned": None if final is None else _untuned(final),
        "improvement": _improvement(study), "error": _error(study),
        "importance": ", ".join(f"{key} {share:.0%}" for key, share in study.importance.items()) or None,
        "plots": ", ".join(map(str, pictures.values())) or None, "study": str(study.directory), "next": _next(study),
    })  # fmt: skip


def _score(score: Score | None) -> str | None:
    return None if score is None else f"{score} on {seeds_text(score.seeds)}, not tuned on"


def _untuned(final: Final) -> str | None:
    return _score(final.baseline) if final.baseline_error is None else f"no score: {final.baseline_error}"


def _improvement(study: Tuning) -> str | None:
    share = None if study.final is None else study.final.improvement
    return None if share is None else f"a tuned run scores above an untuned one with probability {share:.2f}"


def _error(study: Tuning) -> str | None:
    if study.final is not None:
        return study.final.error
    errors = [trial.error for trial in study.trials if trial.error is not None]
    if study.status == "stopped":
        return next((trial.error for trial in study.trials if trial.state == "stopped"), None)
    return f"no trial was trained to the end: {errors[0]}" if errors else None


def _next(study: Tuning) -> str:
    if study.status == "done":
        return command("train", study.best_config)
    return (
        "repeat the command to continue" if study.status == "stopped" else f"read log.txt in {study.directory}/trials"
    )


def draw(study: Tuning) -> dict[str, Path]:
    """Draws history and importance if there is something to draw; without matplotlib, draws nothing."""
    from rl_training.reporting.tuning_plots import save_history, save_importance

    try:
        drawn = {
            "history_plot": save_history(study.trials, study.directory / "history.png"),
            "importance_plot": save_importance(study.importance, study.directory / "importance.png"),
        }
    except ImportError:
        return {}
    except Exception as error:  # a plot must not fail a study
        typer.echo(f"the plots were not drawn: {message_of(error)}; the study is complete", err=True)
        return {}
    return {name: file for name, file in drawn.items() if file is not None}


def report(study: Tuning) -> dict[str, Any]:
    trials = [{"number": trial.number, "state": trial.state, "value": trial.value, "params": trial.params,
               "error": trial.error, "directory": str(trial.folder)} for trial in study.trials]  # fmt: skip
    return {
        "tune": str(study.directory), "status": study.status, "trials": trials, "best": _best(study),
        "baseline": study.final and _score_json(study.final.baseline), "importance": study.importance,
        "error": _error(study), "best_config": study.best_config and str(study.best_config),
    }  # fmt: skip


def _best(study: Tuning) -> dict[str, Any] | None:
    final = study.final
    if final is None:
        return None
    score = _score_json(final.best) or dict.fromkeys(("score", "interval", "seeds", "scores"))
    trial = {"trial": final.trial.number, "params": final.trial.params, "value": final.trial.value}
    return {**trial, **score, "probability_of_improvement": final.improvement}


def _score_json(score: Score | None) -> dict[str, Any] | None:
    if score is None:
        return None
    interval = score.interval and list(score.interval)
    return {"score": score.middle, "interval": interval, "seeds": score.seeds, "scores": score.scores}
