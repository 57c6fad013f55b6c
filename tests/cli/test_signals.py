"""A training that a signal stops saves a checkpoint, reports it, and can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.run import resume_run
from rl_training.experiment.seeds import sweep
from rl_training.experiment.seeds.processes import SeedJob
from rl_training.runtime.checkpoints.format import step_name

LONG = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "1000000",
        "--set", "hidden_sizes=[8]", "--set", "batch_size=8", "--set", "eval_interval=0",
        "--set", "checkpoint_interval=100", "--compile", "off"]  # fmt: skip

PPO = ["ppo", "CartPole-v1", "--steps", "10000000", "--set", "num_steps=64", "--set", "batch_size=64",
       "--set", "hidden_sizes=[8]", "--set", "eval_interval=0", "--set", "checkpoint_interval=640",
       "--set", "log_interval=640"]  # fmt: skip

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.timeout(600)  # every process imports torch, which takes long on a busy machine


def start_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "rl_training.cli", *arguments], text=True, **options)


def stopped(number: signal.Signals, run: Path, *arguments: str, start: Start) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line and result of a training that got the signal after a checkpoint."""
    process = start(*LONG, "--output", str(run), "--json", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        lines = (line.strip() for line in process.stderr)
        introduction = next(line for line in lines if not line.endswith("…"))  # printed as training starts
        while process.poll() is None and not list(run.glob("**/step_*")):
            time.sleep(0.01)
        process.send_signal(number)
        output, _ = process.communicate()
    finally:
        process.kill()
    return process.returncode, introduction, json.loads(output)


def test_a_signal_ends_in_a_checkpoint_and_its_own_exit_code_and_the_same_command_resumes(start_command, tmp_path):
    returned, _, first = stopped(signal.SIGTERM, tmp_path / "run", start=start_process)
    assert (returned, first["status"], first["stop_reason"]) == (143, "stopped", "stopped by SIGTERM")
    assert Path(first["checkpoint"], "manifest.json").exists()
    returned, introduction, second = stopped(signal.SIGINT, tmp_path / "run", start=start_command)
    assert (returned, second["status"], second["stop_reason"]) == (130, "stopped", "stopped by SIGINT")
    assert introduction.endswith(f"1,000,000 updates, resumed at {first['steps']:,}")


def test_a_signal_stops_all_seeds_of_a_population_together(start_command, tmp_path):
    returned, _, report = stopped(signal.SIGTERM, tmp_path / "all", "--seeds", "0-4", start=start_command)
    assert (returned, report["status"]) == (143, "stopped")
    assert [run["seed"] for run in report["runs"]] == [0, 1, 2, 3, 4]


@contextmanager
def started(start: Start, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in a new process group, as a shell does; kills the whole group at the end."""
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_checkpoints(process: subprocess.Popen[str], runs: list[Path]) -> None:
    while not all(list(run.glob("checkpoints/step_*")) for run in runs):
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("command", "number"),
    [  # Ctrl-C in a terminal, and SIGTERM from `timeout`
        ("train", signal.SIGINT),
        ("bench", signal.SIGTERM),
        pytest.param("train", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("bench", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("forked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_signal_to_the_whole_group_makes_seeds_in_processes_save_runs_that_can_be_resumed(
    tmp_path, command, number, forked, start_command, forking
):
    train = command == "train"
    what = PPO[:2] if train else ["--algos", PPO[0], "--envs", PPO[1]]
    folder = tmp_path if train else tmp_path / "ppo-CartPole-v1"
    runs = [folder / "seed_0", folder / "seed_1"]
    words = [command, *what, *PPO[2:], "--seeds", "0-1", "--output", str(tmp_path), "--json"]
    with forking() if forked else nullcontext(), started(start_command if forked else start_process, *words) as process:
        wait_for_checkpoints(process, runs)
        os.killpg(process.pid, number)
        output, errors = process.communicate()
    errors += "" if train else (folder / "log.txt").read_text()
    assert (process.returncode, "Traceback" in errors) == (128 + number, False)
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    reasons = [each["stop_reason"] for each in [*results, *([json.loads(output)] if train else [])]]
    assert set(reasons) == {f"stopped by {number.name}"}
    assert [each["status"] for each in results] == ["stopped", "stopped"]
    assert [Path(each["checkpoint"]).name for each in results] == [step_name(each["steps"]) for each in results]
    for run, result in zip(runs, results, strict=True):
        assert_resumes(run, result["steps"])


def assert_resumes(run: Path, steps: int) -> None:
    before = (run / "metrics.jsonl").read_text()
    assert resume_run(run, steps=steps + 640).steps == steps + 640
    after = (run / "metrics.jsonl").read_text()
    assert after.startswith(before)
    assert after > before


@pytest.mark.parametrize(("number", "returned"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_any_seed_has_a_result_is_reported_in_a_sentence(cli, tmp_path, monkeypatch, number, returned):
    class StoppedAtOnce(SeedJob):
        def start(self) -> None:
            super().start()
            signal.raise_signal(number)

    monkeypatch.setattr(sweep, "SeedJob", StoppedAtOnce)
    result = cli("train", *PPO, "--seeds", "0-1", "--output", tmp_path)
    assert (result.exit_code, result.stderr) == (returned, "")
    assert "because     stopped before it had a result" in result.stdout.splitlines()
    assert "next        the same command continues" in result.stdout.splitlines()
    assert multiprocessing.active_children() == []
