"""One trial: its evaluations are followed while it trains, and a low one stops it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from rl_training.experiment.executors.base import LOG, Command, Executor, Handle
from rl_training.experiment.tuning.evaluations import Evaluations
from rl_training.experiment.tuning.failures import Failures
from rl_training.experiment.tuning.plan import parse_plan
from rl_training.experiment.tuning.study import Study
from rl_training.experiment.tuning.trial import TrialRun

PLAN = {
    "config": {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 400, "eval_interval": 100},
    "search": {"gamma": "0.9:1"},
    "seeds": [0, 1],
}


class Running(Handle):
    """A process that runs until its exit code is set, and records the signals sent to it."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def stop(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.code = -9


class Recorder(Executor):
    def __init__(self) -> None:
        self.limit, self.commands, self.handle = 1, list[Command](), Running()

    def submit(self, command: Command) -> Handle:
        self.commands.append(command)
        self.handle = Running()
        return self.handle


def evaluate(run: Path, **returns: float) -> None:
    """Appends evaluations to the log of a run: step_100=1.0."""
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 1, "policy_loss": 0.5}\n')
        for step, value in returns.items():
            at = int(step.removeprefix("step_"))
            log.write(json.dumps({"step": at, "evaluation": {"step": at, "return_mean": value}}) + "\n")


@pytest.fixture
def study(tmp_path):
    """Five trials that ended, with returns of 10, 20, 30 and 40."""
    study = Study(tmp_path, parse_plan(PLAN).space())
    for number in range(5):
        study.create(number)
        for step in (100, 200, 300, 400):
            study.report(number, step, step / 10)
        study.complete(number, 40.0)
    return study


def trial_of(study: Study, tmp_path: Path, **changes: object) -> tuple[TrialRun, Recorder]:
    plan = parse_plan({**PLAN, **changes})
    executor = Recorder()
    trial = TrialRun(5, plan, plan.train_config(), tmp_path, study, Failures(study, 6), executor)
    return trial, executor


def test_a_trial_is_an_ordinary_command_of_all_its_seeds(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    (command,) = executor.commands
    gamma = study.trial(5).params["gamma"]
    assert command.arguments == (
        "rl_training.cli", "train", f"{tmp_path}/base.yaml", "--set", f"gamma={gamma}", "--seeds", "0,1",
        "--output", f"{tmp_path}/trials/0005", "--json", "--quiet",
    )  # fmt: skip


def test_a_trial_below_the_median_is_stopped_and_recorded_with_its_last_score(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    first, second = trial.runs()
    evaluate(first, step_100=1.0)
    trial.poll(stopping=False)
    assert (trial.state, trial.step, study.trial(5).evaluations) == ("running", -1, {})  # a seed is missing
    evaluate(second, step_100=3.0)
    trial.poll(stopping=False)
    assert (trial.state, executor.handle.signals) == ("pruned", [signal.SIGTERM])
    stored = study.trial(5)
    assert (stored.state, stored.value, stored.evaluations) == ("pruned", 2.0, {100: 2.0})
    trial.poll(stopping=False)
    executor.handle.code = 143
    trial.poll(stopping=False)
    assert (trial.process, trial.state, executor.handle.signals) == (None, "pruned", [signal.SIGTERM])
    best = study.best()
    assert best is not None
    assert best.number == 0


def test_a_trial_that_ended_before_its_log_was_read_is_pruned_all_the_same(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    for run in trial.runs():
        evaluate(run, step_100=11.0, step_200=12.0, step_300=99.0, step_400=99.0)
    executor.handle.code = 0
    trial.poll(stopping=False)
    assert (study.trial(5).state, study.trial(5).evaluations) == ("pruned", {100: 11.0, 200: 12.0})
    assert trial.process is None


def test_without_pruning_the_last_evaluation_is_the_score(study, tmp_path):
    trial, executor = trial_of(study, tmp_path, prune=False)
    trial.start()
    evaluate(trial.runs()[0], step_100=1.0, step_200=9.0, step_400=3.0)
    evaluate(trial.runs()[1], step_100=1.0, step_200=9.0, step_400=5.0)
    executor.handle.code = 0
    trial.poll(stopping=False)
    assert (trial.state, study.trial(5).state, study.trial(5).value) == ("done", "done", 4.0)


def test_the_last_evaluation_prunes_nothing(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    for run in trial.runs():
        evaluate(run, step_404=1.0)  # rollouts may end after the last step
    executor.handle.code = 0
    trial.poll(stopping=False)
    assert (trial.state, study.trial(5).value) == ("done", 1.0)


def test_a_kill_between_an_evaluation_and_its_decision_changes_nothing(study, tmp_path):
    study.create(5)
    study.report(5, 100, 2.0)  # and then a kill
    trial, _ = trial_of(study, tmp_path)
    trial.load(study.trial(5))
    assert trial.waiting
    trial.start()
    assert len(study.trials()) == 6  # not created again
    for run in trial.runs():
        evaluate(run, step_100=2.0)
    trial.poll(stopping=False)
    assert trial.state == "pruned"


def test_a_stopped_trial_stays_running_in_the_journal(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    executor.handle.code = 130
    trial.poll(stopping=True)
    assert (trial.state, study.trial(5).state) == ("stopped", "running")


def test_a_trial_that_a_user_of_the_cluster_has_cancelled_can_be_continued(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    executor.handle.code, executor.handle.stopped, executor.handle.error = 143, True, "job 7 was cancelled"
    trial.poll(stopping=False)
    assert (trial.state, trial.error, study.trial(5).state) == ("stopped", "job 7 was cancelled", "running")


def test_a_trial_that_diverged_is_recorded_with_its_error(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    (trial.folder / LOG).write_text("a warning\nerror: training diverged: loss is NaN\n")
    executor.handle.code = 1
    trial.poll(stopping=False)
    stored = study.trial(5)
    assert (stored.state, stored.error, stored.value) == ("failed", "training diverged: loss is NaN", None)


def test_a_run_without_an_evaluation_is_a_failed_trial(study, tmp_path):
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    executor.handle.code = 0
    trial.poll(stopping=False)
    assert study.trial(5).state == "failed"
    assert (study.trial(5).error or "").startswith("no score: an evaluation is missing")


def test_a_pruned_trial_that_does_not_end_is_killed(study, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.experiment.tuning.trial.SAVE_SECONDS", -1)
    trial, executor = trial_of(study, tmp_path)
    trial.start()
    for run in trial.runs():
        evaluate(run, step_100=1.0)
    trial.poll(stopping=False)
    trial.poll(stopping=False)
    assert executor.handle.code == -9


def test_evaluations_of_rollouts_of_other_lengths_are_compared_at_equal_steps(tmp_path):
    evaluate(tmp_path / "a", step_105=1.0, step_210=2.0, step_303=3.0)
    evaluate(tmp_path / "b", step_105=3.0, step_210=4.0)
    found = Evaluations([tmp_path / "a", tmp_path / "b"])
    assert found.shared(100) == {100: 2.0, 200: 3.0}
    assert found.last() == 3.5
    with (tmp_path / "b" / "metrics.jsonl").open("a") as log:
        log.write('{"step": 303, "evaluation": {"st')  # a run that is being written
    assert found.shared(100) == {100: 2.0, 200: 3.0}
