"""A run is not continued, and its result is not returned, for an environment in Python with other values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training import PPO, Callback, resume_training
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.result import TrainResult
from rl_training.experiment.run_directory import RunDirectory

TINY: dict[str, Any] = {"total_timesteps": 32, "num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8],
                        "eval_interval": 0}  # fmt: skip
LENGTH = 3


class Corridor(CartPoleEnv):
    def __init__(self, length: int = 5) -> None:
        super().__init__()
        self.length = length


class Stop(Callback):
    def on_step_end(self, state: Any) -> None:
        state.request_stop("enough")


def closure(length: Any) -> Callable[[], Corridor]:
    return lambda: Corridor(length)


def default(length: int) -> Callable[[], Corridor]:
    def make(size: int = length) -> Corridor:
        return Corridor(size)

    return make


def of_global(length: int) -> Callable[[], Corridor]:
    globals()["LENGTH"] = length
    return lambda: Corridor(LENGTH)


def options(length: int) -> Callable[[], Corridor]:
    return partial(lambda length: Corridor(length), length=length)


def agent(folder: Path, env: Any, **changed: Any) -> PPO:
    return PPO(env, output_dir=str(folder / "run"), **{**TINY, **changed})


def result_of(trained: PPO) -> TrainResult:
    assert trained.result is not None
    return trained.result


@pytest.mark.parametrize("make", [closure, default, of_global, options])
@pytest.mark.parametrize("callbacks", [[], [Stop()]], ids=["finished", "stopped"])
def test_a_function_of_another_number_is_refused(tmp_path, make, callbacks):
    agent(tmp_path, make(3)).learn(callbacks=callbacks)
    agent(tmp_path, make(3)).learn(callbacks=callbacks)
    with pytest.raises(ConfigError, match=r"differs from the one that the run .* began with, in \w+; choose another"):
        agent(tmp_path, make(8)).learn()
    assert result_of(agent(tmp_path, make(8)).learn(fresh=True)).trained


def test_the_run_can_be_continued_explicitly_in_the_other_environment(tmp_path):
    agent(tmp_path, closure(3)).learn(callbacks=[Stop()])
    resume_training(tmp_path / "run", total_timesteps=16, env=closure(8))
    assert result_of(PPO.load(tmp_path / "run", env=closure(8)).learn()).steps == 32


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (Corridor(3), Corridor(8), "length"), (lambda: Corridor(3), lambda: Corridor(8), "its code"),
        (closure([3][0]), closure(np.int64(3)), ""),
    ],
)  # fmt: skip
def test_objects_and_functions_of_other_code_print_a_warning(tmp_path, capsys, first, second, what):
    agent(tmp_path, first).learn()
    capsys.readouterr()
    assert not result_of(agent(tmp_path, second).learn()).trained
    printed = " ".join(capsys.readouterr().err.split())
    assert ("may differ from the one that the run" in printed) is bool(what)
    assert what in printed


def test_a_path_that_differs_prints_a_warning(tmp_path, capsys):
    agent(tmp_path, of_log("logs/1")).learn()
    assert not result_of(agent(tmp_path, of_log("logs/2")).learn()).trained
    assert "may differ from the one that the run" in " ".join(capsys.readouterr().err.split())


def of_log(path: str) -> Callable[[], Corridor]:
    return lambda: Corridor(len(path))


def test_the_order_of_a_set_in_the_code_changes_nothing():
    code = "from rl_training.envs.creation.fingerprints import of_function; "
    code += "print(of_function(lambda mode='a': mode in {'fast', 'slow', 'other', 'x'}, {}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_a_counter_of_the_calls_changes_nothing(tmp_path, capsys):
    calls = 0

    def make() -> Corridor:
        nonlocal calls
        calls += 1
        return Corridor()

    agent(tmp_path, make).learn(callbacks=[Stop()])
    assert result_of(agent(tmp_path, make).learn()).steps == 32
    assert "differ" not in capsys.readouterr().err


def test_a_run_of_an_earlier_version_is_continued(tmp_path):
    agent(tmp_path, closure(3)).learn(callbacks=[Stop()])
    run = RunDirectory(tmp_path / "run")
    record = run.read("run.json") or {}
    del record["environment"]["fingerprint"]
    run.write("run.json", record)
    assert result_of(agent(tmp_path, closure(8)).learn()).steps == 32


def test_the_record_holds_no_value_of_the_script(tmp_path):
    secret = "correct horse battery staple"
    agent(tmp_path, lambda: Corridor(len(secret))).learn()
    text = (tmp_path / "run" / "run.json").read_text()
    assert "fingerprint" in text
    assert secret not in text
