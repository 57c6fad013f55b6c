"""A kill between the last checkpoint and result.json: the same command writes the same result and trains no further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.training_run import TrainingRun
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState

SAC: dict[str, Any] = {
    "algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 200, "eval_interval": 10, "eval_episodes": 1,
    "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 20},
}  # fmt: skip
EARLY = {"early_stopping": {"patience": 2, "min_delta": 1e6}}
FINISHED = "This run finished earlier; nothing was trained. Use --fresh (fresh=True in Python) to train again."


class KilledError(BaseException):
    pass


TIMES = ("seconds", "updates_per_second", "run_dir")


def result_of(run: Path) -> dict[str, Any]:
    """result.json without the times of the process that wrote it."""
    values = RunDirectory(run).read("result.json") or {}
    return {name: value for name, value in values.items() if name not in TIMES}


def killed_before_the_result(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "finish", die)
        with pytest.raises(KilledError):
            run_training(config)


@pytest.mark.parametrize("end", [EARLY, {"max_updates": 15}, {"total_timesteps": 30}])
def test_the_same_command_writes_the_same_result(end, tmp_path, monkeypatch):
    config = parse_config({**SAC, **end, "output_dir": "run"})
    monkeypatch.chdir(tmp_path)
    whole = run_training(config.model_copy(update={"output_dir": "whole"}))
    killed_before_the_result(config, monkeypatch)
    said: list[str] = []
    again = run_training(config, warn=said.append)
    assert (again.status, again.steps, again.trained, said) == (whole.status, whole.steps, False, [FINISHED])
    expected = {name: _renamed(value) for name, value in result_of(Path("whole")).items()}
    assert result_of(Path("run")) == expected


def _renamed(value: Any) -> Any:
    return value.replace("whole", "run") if isinstance(value, str) else value


def test_more_steps_go_beyond_an_early_stop_whose_result_was_lost(tmp_path, monkeypatch):
    config = parse_config({**SAC, **EARLY, "output_dir": str(tmp_path / "run")})
    killed_before_the_result(config, monkeypatch)
    assert resume_run(tmp_path / "run", steps=35).steps == 35
    assert run_training(config).status == "early_stop"


def test_a_population_keeps_its_stop_reason(tmp_path):
    configs = [
        parse_config({**SAC, "max_updates": 15, "seed": seed, "output_dir": str(tmp_path / str(seed))})
        for seed in (0, 1)
    ]
    first = run_population(configs)
    results = [result_of(result.run_dir) for result in first]
    for result in first:
        (result.run_dir / "result.json").unlink()
    said: list[str] = []
    again = run_population(configs, warn=said.append)
    assert [result.trained for result in again] == [False, False]
    assert [result_of(result.run_dir) for result in again] == results
    assert said == [FINISHED.replace("This run", "These runs")]


class StopDuring(Callback):
    """Requests a stop as a signal does, at this step and before early stopping is checked."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_collect_end(self, state: TrainerState, result: Any) -> None:
        if state.global_step >= self.step:
            state.request_stop("stopped by SIGTERM")


def test_an_interrupted_run_continues(tmp_path):
    config = parse_config({**SAC, "total_timesteps": 30, "output_dir": str(tmp_path / "run")})
    assert run_training(config, callbacks=[StopDuring(20)]).status == "stopped"
    again = run_training(config)
    assert (again.status, again.steps, again.stop_reason, again.trained) == ("finished", 30, None, True)


def test_a_signal_in_the_step_of_an_early_stop_does_not_pass_it(tmp_path):
    config = parse_config({**SAC, **EARLY, "output_dir": str(tmp_path / "run")})
    assert run_training(config, callbacks=[StopDuring(30)]).steps == 30
    again = run_training(config)  # repeats the evaluation that the signal has ended
    assert (again.steps, again.status) == (30, "early_stop")
