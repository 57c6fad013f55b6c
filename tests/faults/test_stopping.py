"""Requests to stop are honoured in seconds anywhere, lose nothing that can be saved, and leave no process behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rl_training.cli import app
from rl_training.envs.pools import workers
from rl_training.experiment.processes import signals
from rl_training.experiment.processes.signals import StopAtOnce, exit_code_of
from rl_training.experiment.run import TrainResult, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime import evaluation, state
from rl_training.runtime.callbacks import saving, training
from rl_training.runtime.engine import Callback
from rl_training.runtime.lanes.acting import ActingLane
from rl_training.runtime.state import TrainerState

ID = "environments:Faulty-v0"
PPO = {"num_steps": 32, "batch_size": 32, "hidden_sizes": [8], "epochs": 1}
DQN = {"collect_steps": 32, "learning_starts": 32, "batch_size": 8, "hidden_sizes": [8], "updates_per_collect": 2}
TERM = signal.SIGTERM


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CUT_SECONDS", 0.0)
    monkeypatch.setattr(signals, "OVERDUE_SECONDS", 0.3)
    monkeypatch.setattr(workers, "CLOSING_SECONDS", 0.3)


def run(directory: Path, *callbacks: Callback, warnings: list[str] | None = None, **given: Any) -> TrainResult:
    config = {
        "algo": "ppo", "env_id": ID, "total_timesteps": 96, "output_dir": str(directory), "eval_interval": 32,
        "eval_episodes": 2, "log_interval": 16, "checkpoint_interval": 64, "algo_kwargs": PPO, **given,
    }  # fmt: skip
    warn = [].append if warnings is None else warnings.append
    return run_training(config, callbacks=callbacks, warn=warn)  # type: ignore[arg-type]  # parsed there


def send(number: int = TERM, *, after: float = 0.0) -> None:
    timer = threading.Timer(after, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


class At(Callback):
    """Calls a function at the end of a step."""

    def __init__(self, step: int, call: Callable[[], None]) -> None:
        self.step, self.call = step, call

    def on_step_end(self, state: TrainerState) -> None:
        if state.global_step == self.step:
            self.call()


def log_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def stop_at_calls(patch: pytest.MonkeyPatch, *calls: int) -> None:
    """Sends a signal during environment steps with these numbers, counted over all runs."""
    act, count = ActingLane.act, iter(range(10**6))

    def acting(*arguments: Any) -> Any:
        if next(count) in calls:
            os.kill(os.getpid(), TERM)
        return act(*arguments)

    patch.setattr(ActingLane, "act", acting)


@pytest.mark.parametrize("schedules", [{}, {"learning_rate": {"kind": "linear"}}])
@pytest.mark.parametrize(("algo", "options"), [("ppo", PPO), ("dqn", DQN), ("dqn", {**DQN, "exploration_fraction": 1})])
def test_a_stop_in_a_rollout_saves_it_and_the_resume_continues_it_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str, options: Any, schedules: Any
):
    given: Any = {"algo": algo, "algo_kwargs": options, "schedules": schedules}
    run(tmp_path / "calm", **given)
    stop_at_calls(monkeypatch, 40, 50, 70)
    for step in (41, 51, 71):
        stopped = run(tmp_path / "cut", **given)
        assert (stopped.status, stopped.stop_reason, stopped.signal) == ("stopped", "stopped by SIGTERM", TERM)
        assert stopped.checkpoint_path == tmp_path / "cut" / "checkpoints" / f"step_{step:09}"
    assert run(tmp_path / "cut", **given).status == "finished"
    assert compare_runs(tmp_path / "calm", tmp_path / "cut") == []


def test_a_rollout_without_end_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stop_at_calls(monkeypatch, 100)
    endless = {**PPO, "num_steps": 10**12, "batch_size": 10**12}
    stopped = run(tmp_path, algo_kwargs=endless)
    assert (stopped.status, stopped.steps) == ("stopped", 101)


@pytest.mark.parametrize(("fault", "env_workers"), [("hang", 0), ("busy", 0), ("hang", 1)])
def test_an_environment_that_hangs_does_not_block_a_stop(tmp_path: Path, fault: str, env_workers: int):
    given: Any = {"env_workers": env_workers, "eval_interval": 0, "checkpoint_interval": 32, "total_timesteps": 64}
    given |= {"env_kwargs": {"fault": fault, "at": 40}}
    stopped = run(tmp_path, At(32, lambda: send(after=0.2)), **given)
    assert (stopped.status, stopped.signal, stopped.steps) == ("stopped", TERM, 32)
    assert stopped.stop_reason is not None
    assert stopped.stop_reason.startswith("stopped by SIGTERM in an environment that did not return; ")
    assert stopped.checkpoint_path == tmp_path / "checkpoints" / "step_000000032"
    assert multiprocessing.active_children() == []
    assert run(tmp_path, **given).status == "finished"  # a new environment is at step 40 later


def stop_in_evaluations(patch: pytest.MonkeyPatch, step: int, times: int, *, after: float = 0.0) -> None:
    """Sends a signal during the first evaluations at a step."""
    evaluate, left = training.Evaluate.on_step_end, [None] * times

    def stopping(callback: Any, state: TrainerState) -> None:
        if state.global_step == step and left:
            left.pop()
            send(after=after) if after else os.kill(os.getpid(), TERM)
        evaluate(callback, state)

    patch.setattr(training.Evaluate, "on_step_end", stopping)


@pytest.mark.parametrize("step", [64, 96])
def test_a_stop_ends_an_evaluation_and_the_resume_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
):
    given: Any = {"early_stopping": {"patience": 9}}
    calm = run(tmp_path / "calm", **given)
    stop_in_evaluations(monkeypatch, step, times=2)
    for _ in range(2):  # the second time in the repeated evaluation
        stopped = run(tmp_path / "cut", **given)
        assert (stopped.status, stopped.steps) == ("stopped", step)
        assert (stopped.evaluation or {})["step"] == step - 32
    assert run(tmp_path / "cut", **given).evaluation == calm.evaluation
    assert compare_runs(tmp_path / "calm", tmp_path / "cut") == []
    assert checkpoints(tmp_path / "cut") == checkpoints(tmp_path / "calm")


def checkpoints(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def test_a_stop_ends_an_evaluation_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given: Any = {"num_envs": 4, "algo_kwargs": {**PPO, "num_steps": 8}, "env_kwargs": {"length": 60}}
    stop_in_evaluations(monkeypatch, 32, times=1, after=0.3)
    stopped = run(tmp_path, **{**given, "env_kwargs": {"length": 60, "fault": "hang", "at": 40}})
    assert (stopped.status, stopped.steps, stopped.evaluation) == ("stopped", 32, None)
    assert checkpoints(tmp_path) == ["step_000000032"]


def test_a_population_repeats_the_evaluations_that_a_stop_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from rl_training.experiment.config.train_config import parse_config
    from rl_training.experiment.run import run_population

    def train(name: str) -> list[TrainResult]:
        config = {
            "algo": "dqn", "env_id": ID, "total_timesteps": 96, "eval_interval": 32, "eval_episodes": 2,
            "checkpoint_interval": 64, "algo_kwargs": {**DQN, "collect_steps": 8},
        }  # fmt: skip
        seeds = [{**config, "seed": seed, "output_dir": str(tmp_path / name / str(seed))} for seed in (0, 1)]
        return run_population([parse_config(seed) for seed in seeds])

    train("calm")
    stop_in_evaluations(monkeypatch, 32, times=1)
    assert {(result.status, result.steps) for result in train("cut")} == {("stopped", 32)}
    assert {result.status for result in train("cut")} == {"finished"}
    for seed in ("0", "1"):
        assert compare_runs(tmp_path / "calm" / seed, tmp_path / "cut" / seed) == []


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("when", ["in the evaluation", "after the evaluation"])
def test_a_long_evaluation_is_preceded_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str):
    monkeypatch.setattr(training, "LONG_EVALUATION", -1.0)
    run(tmp_path / "calm")
    save, saves = saving.SaveCheckpoints.save, 0

    def killed(callback: Any, state: TrainerState, **options: Any) -> Any:
        nonlocal saves
        saves += state.global_step == 32
        if when == "after the evaluation" and saves == 2:
            raise KilledError
        path = save(callback, state, **options)
        if when == "in the evaluation" and saves == 1:
            raise KilledError
        return path

    with monkeypatch.context() as patch:
        patch.setattr(saving.SaveCheckpoints, "save", killed)
        with pytest.raises(KilledError):
            run(tmp_path / "killed")
    assert checkpoints(tmp_path / "killed") == ["step_000000032"]
    evaluated = ["evaluation" in row for row in log_of(tmp_path / "killed")]
    assert evaluated == ([False] if when == "in the evaluation" else [False, True])
    run(tmp_path / "killed")
    assert compare_runs(tmp_path / "calm", tmp_path / "killed") == []
    assert checkpoints(tmp_path / "killed") == checkpoints(tmp_path / "calm")


def test_an_evaluation_without_an_episode_end_warns_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation, "UNENDED_STEPS", 20)
    warnings: list[str] = []
    result = run(tmp_path, warnings=warnings, env_kwargs={"length": -1}, eval_interval=48, eval_max_steps=50)
    assert (result.evaluation or {})["lengths"] == [50, 50]
    assert warnings == [
        "no evaluation episode ended in 20 steps; each is cut at eval_max_steps (50); lower it, or add a time "
        "limit: env_wrappers=[{wrapper: gymnasium.wrappers:TimeLimit, max_episode_steps: 500}]",
        "2 of 2 evaluation episodes did not end and were cut after 50 steps (eval_max_steps); "
        "raise it to see their end",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_command_with_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    monkeypatch.setattr(signals, "ONE_REQUEST", 0.1)
    monkeypatch.setattr(signals, "OVERDUE_SECONDS", 60.0)
    hanging = [f"env_kwargs.fault=signal {number:d}", "num_steps=8", "batch_size=8", "eval_interval=0"]
    options = [part for each in hanging for part in ("--set", each)]
    result = CliRunner().invoke(app, ["train", "ppo", ID, "--output", str(tmp_path), "--steps", "100", *options])
    assert (result.exit_code, "Traceback" in result.output) == (128 + number, False)


def test_exit_codes_of_interrupts():
    assert [exit_code_of(each) for each in (KeyboardInterrupt(), StopAtOnce(TERM))] == [130, 143]


def test_a_worker_that_does_not_reply_is_reported(monkeypatch: pytest.MonkeyPatch):
    import numpy as np

    from rl_training.envs.pools.pool import EnvPool

    monkeypatch.setattr(workers, "SILENT_SECONDS", 0.1)
    warnings: list[str] = []
    slow = {"seconds": 0.5}
    with EnvPool(ID, 1, workers=1, env_kwargs=slow, warn=warnings.append) as pool:
        pool.reset()
        pool.step(np.array([0]))
    assert warnings == ["worker 0 (environment 0) has not replied for 0 seconds in step"]
