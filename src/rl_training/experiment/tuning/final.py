"""Scores the best config, and the untuned one, on seeds that no trial was trained with; writes `best.yaml`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.experiment.bench.plan import PLAN as BENCH_PLAN
from rl_training.experiment.bench.plan import BenchPlan
from rl_training.experiment.bench.plan import plan_yaml as bench_yaml
from rl_training.experiment.bench.runner import Bench, Watch
from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.experiment.executors.base import Executor
from rl_training.experiment.executors.job_log import WarnOnce
from rl_training.experiment.run_directory import RunDirectory, make_directory
from rl_training.experiment.tuning.plan import FinalPlan, TunePlan
from rl_training.experiment.tuning.space import merged
from rl_training.experiment.tuning.study import Trial
from rl_training.experiment.tuning.trial import BASE
from rl_training.files import write_atomically
from rl_training.messages import many, return_format, seeds_text
from rl_training.statistics import Interval, bootstrap_interval, interquartile_mean, probability_of_improvement

FOLDER, BEST = "final", "best.yaml"

WatchBench = Callable[[Bench], AbstractContextManager[Watch]]  # shows the cells while they run


class Score(NamedTuple):
    """Interquartile mean over seeds of the return of the last checkpoint, with its 95% bootstrap interval."""

    seeds: list[int]
    scores: list[float]
    middle: float
    interval: Interval | None  # None with one seed

    def __str__(self) -> str:
        digits = return_format(self.middle, *(self.interval or ()))
        bounds = "" if self.interval is None else f" [{self.interval.low:,{digits}}, {self.interval.high:,{digits}}]"
        return f"{self.middle:,{digits}}{bounds}"


class Final:
    """A bench in `final/` of one or two cells: the best trial's config and, as a baseline, the untuned one."""

    def __init__(self, directory: Path, plan: TunePlan, final: FinalPlan, best: Trial, warn: WarnOnce) -> None:
        self.directory, self.plan, self.final, self.trial, self.warn = directory, plan, final, best, warn
        self.config = merged(plan.config, best.params)
        self.signal: int | None = None
        self.error: str | None = None  # of the best config
        self.baseline_error: str | None = None
        self.best: Score | None = None
        self.baseline: Score | None = None

    def run(self, executor: Executor, watch: WatchBench) -> None:
        folder = self.directory / FOLDER
        make_directory(folder)
        tuned = folder / f"trial_{self.trial.number:04}.yaml"
        write_atomically(tuned, write_yaml(self.config))
        configs = [str(tuned), *([str(self.directory / BASE)] if self.final.baseline else [])]
        plan = BenchPlan(configs=configs, seeds=self.final.seeds, episodes=self.final.episodes)
        write_atomically(folder / BENCH_PLAN, bench_yaml(plan))  # another trial may have been the best before
        for name in (cell.name for cell in plan.cells()):
            drop_other_result(folder / name, plan)
        bench = Bench(plan, folder)
        bench.warn = self.warn
        with watch(bench) as show:
            bench.run(executor=executor, watch=show)
        self.signal = bench.signal
        best, *baseline = bench.cells
        self.best, self.error = score_of(best.result), best.error
        for cell in baseline:
            self.baseline, self.baseline_error = score_of(cell.result), cell.error

    @property
    def improvement(self) -> float | None:
        """Probability that a run of the best config scores above one of the untuned config."""
        if self.best is None or self.baseline is None:
            return None
        return probability_of_improvement(self.best.scores, self.baseline.scores)

    def write(self, count: int, command: str) -> Path:
        """Writes best.yaml, a config for `rl-training train`, with its score as a comment."""
        target = self.directory / BEST
        lines = [f"# {line}\n" for line in self._comments(count, command)]
        write_atomically(target, "".join(lines) + write_yaml(self.config))
        return target

    def _comments(self, count: int, command: str) -> list[str]:
        value = f"{self.trial.value:,{return_format(self.trial.value)}}"
        chosen = f"mean return {value} on {seeds_text(self.plan.seeds)}, by which it was chosen"
        lines = [f"Trial {self.trial.number} of {count}: {chosen}."]
        if self.best is not None:
            lines.append(f"Score on {seeds_text(self.best.seeds)}, not tuned on: {self.best}")
            kind = "mean return" if self.best.interval is None else "interquartile mean and 95% bootstrap interval"
            lines[-1] += f" ({kind}; {many(self.final.episodes, 'episode')} per seed)."
        if self.baseline is not None:
            lines.append(f"Untuned config on the same seeds: {self.baseline}; ")
            lines[-1] += f"probability of improvement {self.improvement:.2f}."
        return [*lines, command]


def drop_other_result(cell: Path, plan: BenchPlan) -> None:
    """Removes the result of a cell that has other seeds or episodes; the runs that it needs stay."""
    result = RunDirectory(cell).read("result.json")
    if result is None:
        return
    found = [(run["seed"], run["score"]["episodes"]) for run in result["runs"]]
    if found != [(seed, plan.episodes) for seed in plan.seeds]:
        (cell / "result.json").unlink()


def score_of(result: Mapping[str, Any] | None) -> Score | None:
    if result is None:
        return None
    scores = [float(run["score"]["return_mean"]) for run in result["runs"]]
    interval = bootstrap_interval(scores) if len(scores) > 1 else None
    return Score([run["seed"] for run in result["runs"]], scores, interquartile_mean(scores), interval)
