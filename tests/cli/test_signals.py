"""A training that is asked to stop saves, says so, and can go on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.seeds import sweep
from rl_training.experiment.seeds.processes import SeedProcess
from rl_training.runtime.checkpoints.format import step_name

LONG = ["train", "bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 200}", "--steps", "1000000",
        "--set", "hidden_sizes=[8]", "--set", "batch_size=8", "--set", "eval_interval=0",
        "--set", "checkpoint_interval=100", "--compile", "off"]  # fmt: skip

PPO = ["ppo", "CartPole-v1", "--steps", "10000000", "--set", "num_steps=64", "--set", "batch_size=64",
       "--set", "hidden_sizes=[8]", "--set", "eval_interval=0", "--set", "checkpoint_interval=640",
       "--set", "log_interval=640"]  # fmt: skip


def stopped(number: signal.Signals, run: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, first line and result of a training that got the signal after a checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training.cli", *LONG, "--output", str(run), "--json", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        introduction = process.stderr.readline().strip()  # said as training starts
        while process.poll() is None and not list(run.glob("**/step_*")):
            time.sleep(0.01)
        process.send_signal(number)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, introduction, json.loads(told)


def test_a_signal_ends_in_a_checkpoint_and_its_own_exit_code_and_the_same_command_goes_on(tmp_path):
    returned, _, first = stopped(signal.SIGTERM, tmp_path / "run")
    assert (returned, first["status"], first["stop_reason"]) == (143, "stopped", "asked to stop by SIGTERM")
    assert Path(first["checkpoint"], "manifest.json").exists()
    returned, introduction, second = stopped(signal.SIGINT, tmp_path / "run")
    assert (returned, second["status"], second["stop_reason"]) == (130, "stopped", "asked to stop by SIGINT")
    assert introduction.endswith(f"1,000,000 updates, on from {first['steps']:,}")


def test_a_signal_stops_all_seeds_of_a_population_together(tmp_path):
    returned, _, told = stopped(signal.SIGTERM, tmp_path / "all", "--seeds", "0-4")
    assert (returned, told["status"]) == (143, "stopped")
    assert [run["seed"] for run in told["runs"]] == [0, 1, 2, 3, 4]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a shell gives it; none of the group is left behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training.cli", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_checkpoints(process: subprocess.Popen[str], runs: list[Path], *, after: int) -> None:
    while not all(any(int(step.name[5:]) > after for step in run.glob("checkpoints/step_*")) for run in runs):
        assert process.poll() is None
        time.sleep(0.01)


TO_ALL = [  # Ctrl-C in a terminal, and SIGTERM from `timeout`
    ("train", 2, signal.SIGINT),
    ("train", 1, signal.SIGTERM),
    ("bench", 1, signal.SIGINT),
    pytest.param("bench", 2, signal.SIGINT, marks=pytest.mark.slow),
    pytest.param("bench", 1, signal.SIGTERM, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("command", "times", "number"), TO_ALL)
def test_asked_with_the_whole_group_seeds_in_processes_have_saved_and_go_on_from_there(
    tmp_path, command, times, number
):
    train = command == "train"
    what = PPO[:2] if train else ["--algos", PPO[0], "--envs", PPO[1]]
    folder = tmp_path if train else tmp_path / "ppo-CartPole-v1"
    runs, last, logs = [folder / "seed_0", folder / "seed_1"], 0, [""] * 2
    for _ in range(times):
        with started(command, *what, *PPO[2:], "--seeds", "0-1", "--output", str(tmp_path), "--json") as process:
            wait_for_checkpoints(process, runs, after=last)
            os.killpg(process.pid, number)
            out, said = process.communicate(timeout=60)
        said += "" if train else (folder / "log.txt").read_text()
        assert (process.returncode, "Traceback" in said) == (128 + number, False)
        told = [json.loads((run / "result.json").read_text()) for run in runs]
        asked = [*told, json.loads(out)] if train else told
        assert [each["stop_reason"] for each in asked] == [f"asked to stop by {number.name}"] * len(asked)
        assert [each["status"] for each in told] == ["stopped", "stopped"]
        assert [Path(each["checkpoint"]).name for each in told] == [step_name(each["steps"]) for each in told]
        before, logs = logs, [(run / "metrics.jsonl").read_text() for run in runs]
        assert all(log.startswith(first) and log > first for first, log in zip(before, logs, strict=True))
        last = max(each["steps"] for each in told)


@pytest.mark.parametrize(("number", "returned"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_any_seed_has_a_result_is_told_in_a_sentence(cli, tmp_path, monkeypatch, number, returned):
    class StoppedAtOnce(SeedProcess):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            signal.raise_signal(number)

    monkeypatch.setattr(sweep, "SeedProcess", StoppedAtOnce)
    result = cli("train", *PPO, "--seeds", "0-1", "--output", tmp_path)
    assert (result.exit_code, result.stderr) == (returned, "")
    assert "because     asked to stop before it had a result" in result.stdout.splitlines()
    assert "next        the same command again goes on" in result.stdout.splitlines()
    assert multiprocessing.active_children() == []
