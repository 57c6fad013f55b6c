"""The start of a run: few imports, compiled code is kept, and what takes long is shown."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from rl_training import waiting
from rl_training.experiment.processes import startup
from rl_training.runtime.callbacks import progress

TRAIN = """
import json, sys
from typer.testing import CliRunner
from rl_training.cli import app
import rl_training.cli.train as command
command.draw_curve = lambda run: None  # imports matplotlib, after the run
unwanted = {"torch._dynamo", "torch._inductor", "tensorboard", "matplotlib", "scipy", "pandas", "sympy", "minari",
            "h5py", "mujoco", "ale_py", "ray", "submitit", "optuna", "bokeh"}
for words in json.load(sys.stdin):
    result = CliRunner().invoke(app, ["train", *words, "--output", words[0].replace("/", "_")])
    assert result.exit_code == 0, result.output
    assert not unwanted & set(sys.modules), (words, unwanted & set(sys.modules))
    from rl_training.algorithms import ROWS
    print(sorted(name for name in ROWS if f"rl_training.algorithms.{name}" in sys.modules))
"""  # fmt: skip
QUICK = ["--device", "cpu", "--compile", "off", "--quiet", "--set", "eval_interval=0", "--set", "log=[]"]
ONE_SEED = ["ppo/cartpole", "--steps", "256", *QUICK]
TWO_SEEDS = ["bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 64}", "--steps", "2", "--seeds", "0-1", *QUICK,
             "--set", "hidden_sizes=[8]"]  # fmt: skip


def test_a_run_imports_its_own_algorithm_and_no_slow_package(tmp_path):
    runs = json.dumps([ONE_SEED, TWO_SEEDS])
    ran = subprocess.run([sys.executable, "-c", TRAIN], input=runs, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    # The imitation lane uses the discriminator of gail.
    assert ran.stdout.splitlines() == ["['gail', 'ppo']", "['bc', 'gail', 'ppo']"]


def test_a_long_wait_is_shown_and_a_short_one_is_not(monkeypatch):
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.02)
    shown: list[str] = []
    with waiting.waiting_for("loading", shown.append):
        until(lambda: bool(shown))
    assert shown == ["loading …"]
    monkeypatch.setattr(waiting, "LINE_SECONDS", 60.0)
    with waiting.waiting_for("loading", shown.append):
        pass
    with waiting.waiting_for("loading", None):
        pass
    assert len(shown) == 1


def test_only_the_first_call_is_announced(monkeypatch):
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.02)
    shown: list[str] = []

    class Updater:
        def run(self, count: int) -> int:
            until(lambda: bool(shown))
            return count

    updater = Updater()
    waiting.announce_first_call(updater, "run", "compiling", shown.append)
    assert [updater.run(1), updater.run(2)] == [1, 2]
    assert shown == ["compiling …"]
    assert "run" not in vars(updater)


def test_only_the_first_call_is_announced_inside_another_wrapper(monkeypatch):
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.0)
    shown: list[str] = []

    class Updater:
        def run(self) -> None:
            time.sleep(0.05)

    updater = Updater()
    waiting.announce_first_call(updater, "run", "compiling", shown.append)
    announced = updater.run
    updater.run = lambda: announced()  # type: ignore[method-assign]  # as a profile does
    for _ in range(3):
        updater.run()
    assert shown == ["compiling …"]


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"device": "cpu", "compile": False}, "the first update"),
        ({"device": "cpu", "compile": True}, "compiling the updates (up to a minute the first time, then stored)"),
        ({"device": "cuda", "compile": False}, "capturing the updates as a CUDA graph"),
    ],
)
def test_the_wait_of_the_first_update_is_named(choices, text):
    assert startup.first_update_wait(choices) == text


def test_compiled_code_is_kept_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(startup.CACHE_VARIABLE, "chosen")
    startup.keep_compiled_code()
    assert os.environ[startup.CACHE_VARIABLE] == "chosen"
    monkeypatch.delenv(startup.CACHE_VARIABLE)
    startup.keep_compiled_code()
    assert os.environ[startup.CACHE_VARIABLE] == str(tmp_path / "rl_training" / "compiled")


def test_empty_libraries_of_killed_processes_are_removed_from_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(startup.CACHE_VARIABLE, raising=False)
    folder = tmp_path / "rl_training" / "compiled" / "ab"
    folder.mkdir(parents=True)
    cut, linking, whole = (folder / f"{name}.main.so" for name in ("cut", "linking", "whole"))
    for file, content, age in ((cut, b"", 60), (linking, b"", 0), (whole, b"code", 60)):
        file.write_bytes(content)
        os.utime(file, (time.time() - age, time.time() - age))
    startup.keep_compiled_code()
    assert sorted(folder.iterdir()) == [linking, whole]


def test_a_cache_folder_that_cannot_be_made_is_left_to_pytorch(monkeypatch, tmp_path):
    (tmp_path / "rl_training").write_text("a file, where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(startup.CACHE_VARIABLE, raising=False)
    startup.keep_compiled_code()
    assert startup.CACHE_VARIABLE not in os.environ


def test_a_wait_is_no_part_of_the_rate(monkeypatch):
    clock = iter([0.0, 100.0, 110.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock, 110.0))
    text = io.StringIO()
    shown = progress.ShowProgress(Console(file=text, width=200))
    state = SimpleNamespace(global_step=0, total_timesteps=50, metrics={}, evaluation=None)
    shown.on_train_start(state)
    shown.waiting("compiling …")
    state.global_step = 10
    shown.on_step_end(state)
    state.global_step = 20
    shown.on_step_end(state)
    assert text.getvalue().splitlines() == ["compiling …", "step 20 of 50  1/s  about 30 s left"]
