"""Starts, resumes and stops training runs: a single one, or several seeds as one population."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_training.algorithms import Learner
from rl_training.data import TransitionDataset, check_dataset
from rl_training.envs.creation.given import Given
from rl_training.envs.interrupts import environment_calls
from rl_training.envs.pools.workers import TooManyRestarts
from rl_training.experiment.agent import find_checkpoint
from rl_training.experiment.assembly import RunParts, assemble
from rl_training.experiment.config.callbacks import listed_callbacks
from rl_training.experiment.config.dataset_config import DatasetRecipe
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.edited_config import accept_edits, compare_environment
from rl_training.experiment.lanes import warn_of_no_updates
from rl_training.experiment.machine import Choices, apply, choose
from rl_training.experiment.processes.signals import StopAtOnce, caught_signals, stop_reason
from rl_training.experiment.processes.startup import assembly_wait, first_update_wait, keep_compiled_code
from rl_training.experiment.result import UNFINISHED, TrainResult, nothing_trained
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.starts import Starts, find_starts, set_aside, started_from
from rl_training.experiment.training_run import RecordFirstCheckpoint, TrainingRun, explained
from rl_training.experiment.trust import Trust, remember
from rl_training.experiment.user_errors import reason_of
from rl_training.messages import Warn, print_warning
from rl_training.processes import end_if_repeated
from rl_training.runtime.callbacks.profile import Profile
from rl_training.runtime.callbacks.progress import ShowProgress
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.checkpoints.reading import Checkpoint, list_checkpoints
from rl_training.runtime.engine import Callback, train
from rl_training.runtime.population import Members
from rl_training.runtime.state import DivergedError, TrainerState
from rl_training.waiting import announce_first_call, show_line, waiting_for

__all__ = ["TrainResult", "resume_run", "run_population", "run_training"]

Start = Checkpoint | Path | str | None


def run_training(
    config: TrainConfig, *, callbacks: Callback | Sequence[Callback] = (), fresh: bool = False, quiet: bool = True,
    start_from: Start = None, warn: Warn = print_warning, own: bool = True,
) -> TrainResult:  # fmt: skip
    """Starts or resumes the run of this config, or returns the stored result if it has finished.

    `own`: the config is the user's, so modules that it names are trusted from now on.
    """
    if own:
        remember(config, warn)
    parsed = parse_config(config)
    if fresh and start_from is not None:
        _require_kept(start_from, RunDirectory.of(parsed).path)
    return _run([parsed], None, callbacks, fresh=fresh, quiet=quiet, start_from=start_from, warn=warn)[0]


def run_population(
    configs: Sequence[TrainConfig], *, callbacks: Callback | Sequence[Callback] = (), fresh: bool = False,
    quiet: bool = True, warn: Warn = print_warning, own: bool = True,
) -> list[TrainResult]:  # fmt: skip
    """Trains configs that differ only in the seed as one population, each in its own directory."""
    if own:
        remember(configs[0], warn)
    parsed = [parse_config(config) for config in configs]
    return _run(parsed, None, callbacks, fresh=fresh, quiet=quiet, start_from=None, warn=warn)


def resume_run(
    path: Path | str, *, steps: int | None = None, callbacks: Callback | Sequence[Callback] = (), quiet: bool = True,
    warn: Warn = print_warning, trust: Trust = (), given: Given | None = None,
) -> TrainResult:  # fmt: skip
    """Resumes a run up to its last step or to `steps`; `trust` names modules that its environment may import."""
    config = RunDirectory(path).config(trust)
    if config is None:
        raise ConfigError(f"{path} is not a run directory: it has no config.yaml")
    config = config.model_copy(update={"output_dir": str(path)})
    config = config if given is None else config.with_given(given)
    return _run([config], steps, callbacks, fresh=False, quiet=quiet, start_from=None, warn=warn, resumed=True)[0]


def _run(
    configs: Sequence[TrainConfig], steps: int | None, callbacks: Callback | Sequence[Callback], *, fresh: bool,
    quiet: bool, start_from: Start, warn: Warn, resumed: bool = False,
) -> list[TrainResult]:  # fmt: skip
    """Trains the runs of these configs, as a population if there are several, up to `steps` or to their end."""
    directories = [RunDirectory.of(config) for config in configs]
    listed = listed_callbacks(callbacks)
    with ExitStack() as stack:
        edited = _lock(directories, configs, stack, fresh=fresh, warn=warn)
        if not fresh:
            compare_environment([each.path for each in directories], configs[0], warn, resumed=resumed)
        if not fresh and (results := _stored_results(directories, steps)):
            warn(nothing_trained(results, resumed=resumed))
            return results
        record = {} if fresh else directories[0].read("run.json") or {}
        starts = _starts(directories, start_from, record, fresh=fresh, warn=warn)
        start = starts.checkpoints[0]
        choices, is_new = _choices(configs[0], record, edited, start, directories[0])
        apply(choices)
        planned = record.get("total_timesteps") or configs[0].duration
        callbacks = [*listed, *([] if steps is None or steps >= planned else [StopAtStep(steps)])]
        total = max(steps or 0, planned)
        _warn_of_other_seeds(record, [config.seed for config in configs], start, total, warn)
        state, parts = _assembled(configs, choices, total, start, measure=is_new, quiet=quiet, warn=warn)
        for each in parts:
            stack.callback(each.close)
        runs = _training_runs(directories, configs, parts, callbacks, starts=starts.checkpoints, warn=warn)
        set_aside(directories, starts, warn)
        for run, config in zip(runs, configs, strict=True):
            run.directory.begin(config, fresh=fresh)  # not earlier: a wrong config must not delete a run
            run.begin()
        if runs[0].starts_elsewhere or (steps or 0) > state.global_step:
            state.forget_end()
        warned = warn_of_no_updates(configs[0], state, steps or planned, warn)
        results = _train(state, runs, callbacks, num_envs=configs[0].num_envs, quiet=quiet)
    if results[0].status not in UNFINISHED and not results[0].trained:
        warn(nothing_trained(results, resumed=resumed))
    if results[0].status == "finished" and not warned:
        warn_of_no_updates(configs[0], state, None, warn)
    return results


def _require_kept(start: Checkpoint | Path | str, directory: Path) -> None:
    path = start.path if isinstance(start, Checkpoint) else Path(start)
    if path.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(
            f"fresh would delete the run in {directory}, which holds {path} to start from; copy it elsewhere first"
        )


def _lock(
    directories: Sequence[RunDirectory], configs: Sequence[TrainConfig], stack: ExitStack, *, fresh: bool, warn: Warn
) -> set[str]:
    """Locks and checks the run directories; returns the keys that differ from the newest checkpoints."""
    end_if_repeated()
    edited = set[str]()
    for directory, config in zip(directories, configs, strict=True):
        stack.enter_context(directory.locked())
        directory.check(config, fresh=fresh)
        edited |= set() if fresh else accept_edits(directory, config, warn)
    return edited


def _stored_results(directories: Sequence[RunDirectory], steps: int | None) -> list[TrainResult]:
    """Returns the results if all runs have finished at `steps` or later, else an empty list."""
    ended = [directory.read("result.json") for directory in directories]
    if not all(each and each["status"] not in UNFINISHED and each["steps"] >= (steps or 0) for each in ended):
        return []
    return [TrainResult.from_json(d.path, each) for d, each in zip(directories, ended, strict=True) if each]


def _starts(
    directories: Sequence[RunDirectory], start_from: Start, record: dict[str, Any], *, fresh: bool, warn: Warn
) -> Starts:
    """Returns the checkpoint that each run starts from: its own, else `start_from`, else that of its run.json."""
    own = Starts([None] * len(directories)) if fresh else find_starts(directories)
    if own.checkpoints[0] is not None or not (other := start_from or started_from(record, directories[0].path)):
        return own
    return Starts([other if isinstance(other, Checkpoint) else find_checkpoint(Path(other), warn=warn)])


def _choices(
    config: TrainConfig, record: dict[str, Any], edited: set[str], start: Checkpoint | None, directory: RunDirectory
) -> tuple[Choices, bool]:
    """Returns the stored choices, or new ones, and whether they are new.

    Without run.json, the run's own checkpoint has those that change results.
    """
    is_new = "choices" not in record
    choices = choose(config) if is_new else Choices(**record["choices"])
    if is_new and start is not None and start.path.parent == directory.checkpoints:
        known = {name: start.info[name] for name in ("threads", "compile", "overlap") if name in start.info}
        choices, is_new = choices._replace(**known), False
    if "threads" in edited:
        choices = choices._replace(threads=config.threads or 1)
    return choices, is_new


def _warn_of_other_seeds(
    record: dict[str, Any], seeds: Sequence[int], start: Checkpoint | None, total: int, warn: Warn
) -> None:
    """Warns if a run goes on alone or with other seeds than it began with: a population shares its random numbers."""
    if start is None or start.step >= total or not record:
        return
    began = record.get("population") or [seeds[0]]
    if began != seeds:
        then, now = (_alone_or_together(each) for each in (began, seeds))
        warn(f"resume is approximate, not exact: the run began {then}, and continues {now}")


def _alone_or_together(seeds: Sequence[int]) -> str:
    named = ", ".join(map(str, seeds))
    return "alone" if len(seeds) == 1 else f"as one program of seeds {named}, which share random numbers"


def _assembled(
    configs: Sequence[TrainConfig], choices: Choices, total: int, start: Checkpoint | None, *, measure: bool,
    quiet: bool, warn: Warn,
) -> tuple[TrainerState, list[RunParts]]:  # fmt: skip
    keep_compiled_code()
    show = None if quiet else show_line
    with waiting_for(assembly_wait(configs[0], choices.device), show):
        return assemble(configs, choices, total, start=start, measure=measure, show=show, warn=warn)


def _training_runs(
    directories: Sequence[RunDirectory], configs: Sequence[TrainConfig], parts: Sequence[RunParts],
    callbacks: Sequence[Callback], *, starts: Sequence[Checkpoint | None], warn: Warn,
) -> list[TrainingRun]:  # fmt: skip
    if starts[0] is None and parts[0].dataset is not None:
        for warning in _data_warnings(configs[0], parts[0].dataset, parts[0].learner):
            warn(warning)
        for note in parts[0].dataset.notes:
            warn(f"dataset: {note}")
    user = callbacks if len(configs) == 1 else ()
    runs = [
        TrainingRun(directory, config, own, checkpoint=start, user=user, warn=warn)
        for directory, config, own, start in zip(directories, configs, parts, starts, strict=True)
    ]
    for run in runs if len(runs) > 1 else ():
        run.record["population"] = [config.seed for config in configs]
    return runs


def _data_warnings(config: TrainConfig, dataset: TransitionDataset, learner: Learner) -> list[str]:
    if isinstance(config.dataset, DatasetRecipe):
        random = learner.needs_expert and config.dataset.kind == "random"
        warning = "the expert's dataset comes from a random policy; use this run for testing only"
        return [warning] if random else []
    if config.dataset_stride > 1:  # the gaps are intended
        return []
    found = check_dataset(dataset, rewards=learner.reads_rewards)
    return [f"possible problem in the dataset: {each}" for each in found]


def _train(
    state: TrainerState, runs: Sequence[TrainingRun], callbacks: Sequence[Callback], *, num_envs: int, quiet: bool
) -> list[TrainResult]:
    shown = [] if quiet else [ShowProgress()]
    for progress in shown:
        announce_first_call(state.updater, "run", first_update_wait(runs[0].record["choices"]), progress.waiting)
    alone = len(runs) == 1
    members = [(run.state, run.callbacks) for run in runs]
    notified = runs[0].callbacks if alone else [Members(members, num_envs=num_envs), *callbacks]
    for profile in (each for each in callbacks if isinstance(each, Profile)):
        profile.watch(state, [callback for run in runs for callback in run.callbacks])
    began, updates, step = time.perf_counter(), state.updates, state.global_step
    try:
        with stopping_on_signals(state) as caught:
            train(state, [*notified, RecordFirstCheckpoint(runs), *shown])
    except Exception as error:
        reported = explained(error, runs)
        for run in runs:
            with suppress(Exception):  # such as a full disk; the first error is the one to report
                run.fail(reason_of(reported), updates=state.updates - updates, seconds=time.perf_counter() - began)
        if not isinstance(error, DivergedError | TooManyRestarts):
            raise
        saved = list_checkpoints(runs[0].directory.checkpoints)
        kept = f"the last checkpoint is {saved[-1].name}" if saved else "no checkpoint was saved before"
        raise type(reported)(f"{reported}; {kept}") from error
    finally:
        seconds = time.perf_counter() - began
        for run in runs:
            run.close_log()
    number = caught[0] if caught else None
    trained = (state.updates, state.global_step) != (updates, step)
    return [
        run.finish(updates=state.updates - updates, seconds=seconds, signal=number, trained=trained) for run in runs
    ]


@contextmanager
def stopping_on_signals(state: TrainerState) -> Iterator[list[int]]:
    """Stops training at the next step boundary on a signal; a second signal ends the process at once.

    An environment call that does not return is interrupted a few seconds after the first signal.
    """

    def stop(number: int) -> None:
        if state.stop_reason is not None and len(caught) > 1:
            raise StopAtOnce(number)
        state.request_stop(stop_reason(number))

    with caught_signals(stop, overdue=environment_calls.interrupt) as caught:
        yield caught
