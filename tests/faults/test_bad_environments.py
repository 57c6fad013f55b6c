"""Environments that raise, exit, die or return NaN, in this process and in worker processes."""

from __future__ import annotations

import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.envs.pools.group import EnvError
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.pools.workers import TooManyRestarts
from rl_training.experiment.run import TrainResult, resume_run, run_training
from rl_training.experiment.user_errors import USER_ERRORS
from rl_training.runtime.state import DivergedError

ID = "environments:Faulty-v0"
FINITE = "; return finite numbers, or end the episode before them"
SMALL = {"num_steps": 8, "batch_size": 8, "hidden_sizes": [8], "epochs": 1}


def roll(fault: str, workers: int, *, steps: int = 12, **options: Any) -> EnvPool:
    """Steps two environments; the fault comes at step 5."""
    with EnvPool(ID, 2, workers=workers, env_kwargs={"fault": fault}, **options) as pool:
        pool.reset()
        for _ in range(steps):
            pool.step(np.array([0, 1]))
    assert multiprocessing.active_children() == []
    return pool


def ignore(warning: str) -> None: ...


def train(directory: Path, fault: str = "", *, warnings: list[str] | None = None, **config: Any) -> TrainResult:
    kwargs = {"fault": fault, **config.pop("env_kwargs", {})}
    settings = {
        "algo": "ppo", "env_id": ID, "env_kwargs": kwargs, "total_timesteps": 64, "output_dir": str(directory),
        "eval_interval": 0, "log_interval": 8, "checkpoint_interval": 8, "algo_kwargs": SMALL, **config,
    }  # fmt: skip
    return run_training(settings, warn=ignore if warnings is None else warnings.append)  # type: ignore[arg-type]  # parsed there


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fault", "message", "fix"),
    [
        ("error", "environment 0 failed in step: ZeroDivisionError: gone", ""),
        ("system exit", "environment 0 failed in step: SystemExit: 3", ""),
        ("generator exit", "environment 0 failed in step: GeneratorExit", ""),
        ("unprintable", "environment 0 failed in step: Unprintable", ""),
        ("nan obs", "environment 0 returned a NaN or infinite observation: nan at [0]", FINITE),
        ("nan reward", "environment 0 returned a NaN or infinite reward: nan", FINITE),
        ("1e39 reward", "environment 0 returned a reward too large for float32: 1e+39", "; scale the rewards down"),
    ],
)
@pytest.mark.usefixtures("forked_workers")
def test_a_fault_is_one_sentence_in_this_process_and_in_workers(fault: str, message: str, fix: str, workers: int):
    with pytest.raises(EnvError) as raised:
        roll(fault, workers)
    sentence, _, place = str(raised.value).partition(" (")
    assert sentence == message
    assert re.fullmatch(rf"\S*environments\.py:\d+\){fix}", place)
    assert not isinstance(raised.value, USER_ERRORS)


@pytest.mark.usefixtures("forked_workers")
def test_a_keyboard_interrupt_of_an_environment_ends_the_process_or_is_an_error_of_its_worker():
    with pytest.raises(KeyboardInterrupt):
        roll("keyboard interrupt", 0)
    with pytest.raises(EnvError, match=r"^a worker failed: KeyboardInterrupt$"):
        roll("keyboard interrupt", 1)


@pytest.mark.parametrize(
    ("fault", "kind", "error"),
    [
        ("exit", EnvError, "SystemExit: 3"),
        ("error", EnvError, "AssertionError"),
        ("value", ValueError, "ValueError: wrong"),
    ],
)
def test_a_constructor_that_fails_is_an_error_that_names_the_environment_and_the_line(
    fault: str, kind: type[Exception], error: str
):
    sentence = rf"^environment environments:Faulty-v0 could not be created: {error} \(\S*environments\.py:\d+\)$"
    with pytest.raises(kind, match=sentence):
        roll(f"{fault} in constructor", 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_cannot_be_closed_is_a_warning(capfd: pytest.CaptureFixture[str], workers: int):
    roll("close", workers)
    warnings = capfd.readouterr().err.splitlines()
    assert set(warnings) == {
        f"environment {number} failed in close: OSError: the simulator is gone" for number in (0, 1)
    }


def test_a_run_whose_environment_cannot_be_closed_ends_with_its_result(tmp_path: Path):
    warnings: list[str] = []
    assert train(tmp_path, "close", warnings=warnings).status == "finished"
    assert warnings == ["environment 0 failed in close: OSError: the simulator is gone"]
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(("fault", "end"), [("kill", "ended by SIGKILL"), ("exit", "ended with exit code 7")])
@pytest.mark.usefixtures("forked_workers")
def test_every_dead_worker_is_reported_and_its_episode_truncated(fault: str, end: str):
    warnings: list[str] = []
    pool = roll(fault, 1, warn=warnings.append)
    assert pool.restarts == 2
    assert warnings == [
        f"worker 0 (environments 0 to 1) {end}; its episodes are truncated and it is restarted "
        f"(restart {number} of at most 20)"
        for number in (1, 2)
    ]


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("forked_workers")
def test_deaths_are_counted_in_the_log_and_the_result_across_a_resume_and_end_the_run_at_the_limit(tmp_path: Path):
    warnings: list[str] = []
    dying: Any = {"env_workers": 1, "max_env_restarts": 2, "env_kwargs": {"at": 20}}
    with pytest.raises(TooManyRestarts, match=r"exit code 7, and max_env_restarts \(2\) .*; the last checkpoint"):
        train(tmp_path, "exit", warnings=warnings, **dying)
    assert len(warnings) == 2
    assert [row["env_restarts"] for row in log_of(tmp_path)] == [0, 0, 1, 1, 2, 2, 2]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["env_restarts"]) == ("failed", 2)
    assert result["stop_reason"].startswith("worker 0 (environment 0) ended with exit code 7")
    assert Path(result["checkpoint"]).name == "step_000000056"
    finished = train(tmp_path, "exit", **dying)  # the same command continues, and a new worker survives the last steps
    assert (finished.status, finished.env_restarts) == ("finished", 2)


@pytest.mark.usefixtures("forked_workers")
def test_no_death_is_allowed_with_a_limit_of_zero(tmp_path: Path):
    with pytest.raises(TooManyRestarts, match=r"max_env_restarts \(0\) allows no other restart; .*; no checkpoint was"):
        train(tmp_path, "kill", env_workers=1, max_env_restarts=0, checkpoint_interval=64, env_kwargs={"at": 3})
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["env_restarts"], result["checkpoint"]) == ("failed", 0, None)


def test_a_log_has_restarts_only_with_workers_and_a_result_always(tmp_path: Path):
    result = train(tmp_path)
    assert result.to_json()["env_restarts"] == 0
    assert not any("env_restarts" in row for row in log_of(tmp_path))


@pytest.mark.usefixtures("forked_workers")
def test_a_death_that_a_checkpoint_has_counted_is_counted_after_a_resume(tmp_path: Path):
    stopped = train(tmp_path, "exit", env_workers=1, env_kwargs={"at": 10}, total_timesteps=16)
    assert (stopped.status, stopped.env_restarts) == ("finished", 1)
    assert resume_run(tmp_path, steps=24, warn=ignore).env_restarts >= 2


@pytest.mark.parametrize("when", ["in training", "in an evaluation"])
@pytest.mark.usefixtures("forked_workers")
def test_nan_actions_are_reported_as_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str):
    from rl_training.algorithms import PPOAlgorithm

    act = PPOAlgorithm.act

    def nan_act(self: Any, *arguments: Any, deterministic: bool = False, **options: Any) -> Any:
        action = act(self, *arguments, deterministic=deterministic, **options)
        fails = deterministic == (when == "in an evaluation")
        return action._replace(actions=action.actions * float("nan")) if fails else action

    monkeypatch.setattr(PPOAlgorithm, "act", nan_act)
    for workers in (0, 1):
        given: Any = {"env_workers": workers, "env_kwargs": {"continuous": True}, "eval_interval": 16}
        with pytest.raises(
            DivergedError, match=r"^the policy's actions are NaN or infinite; lower the learning rate; "
        ):
            train(tmp_path / str(workers), **given)
