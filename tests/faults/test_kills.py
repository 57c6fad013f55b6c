"""A run killed at random moments, and started again each time, ends byte for byte like an uninterrupted one."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.verify import compare_runs

COMMON = ["--set", "eval_episodes=1", "--compile", "off", "--quiet", "--json"]
RANDOM_DATA = "{kind: random, rows: 3000}"
SETUPS = {
    "short": ["dqn", "CartPole-v1", "--steps", "800", "--set", "learning_starts=100", "--set", "eval_interval=200",
              "--set", "hidden_sizes=[16]", "--set", "batch_size=16"],
    "ppo": ["ppo", "CartPole-v1", "--steps", "8192", "--set", "num_steps=128", "--set", "eval_interval=2048"],
    "dqn": ["dqn", "CartPole-v1", "--steps", "4000", "--set", "learning_starts=200", "--set", "eval_interval=1000"],
    "sac_pendulum": ["sac", "Pendulum-v1", "--steps", "900", "--set", "learning_starts=200",
                     "--set", "hidden_sizes=[64,64]", "--set", "eval_interval=300"],
    "sac_hopper": ["sac", "Hopper-v5", "--steps", "900", "--set", "learning_starts=200",
                   "--set", "hidden_sizes=[64,64]", "--set", "eval_interval=300"],
    "iql": ["iql", "Pendulum-v1", "--dataset", RANDOM_DATA, "--steps", "900", "--set", "eval_interval=300"],
    "cql": ["cql", "Pendulum-v1", "--dataset", RANDOM_DATA, "--steps", "200", "--set", "eval_interval=60"],
    "mbpo": ["mbpo/pendulum", "--steps", "700", "--set", "eval_interval=60", "--set", "learning_starts=300"],
    "gail": ["gail", "CartPole-v1", "--dataset", RANDOM_DATA, "--steps", "4096", "--set", "eval_interval=1024"],
    "dreamer": ["dreamer/catch", "--steps", "1150", "--set", "eval_interval=50"],
    "population": ["sac", "Pendulum-v1", "--seeds", "0-2", "--steps", "700", "--set", "learning_starts=200",
                   "--set", "hidden_sizes=[32,32]", "--set", "eval_interval=200"],
    "population_workers": ["sac", "Pendulum-v1", "--seeds", "0-2", "--steps", "700", "--set", "learning_starts=200",
                           "--set", "hidden_sizes=[32,32]", "--set", "eval_interval=200", "--set", "env_workers=2"],
    "processes": ["ppo", "CartPole-v1", "--seeds", "0,1", "--steps", "6144", "--set", "num_steps=128",
                  "--set", "eval_interval=2048"],
}  # fmt: skip
Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.timeout(3600)


def start_process(*words: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "rl_training.cli", *words], text=True, **options)


class Training:
    """A training command in a process group of its own, which is gone at the end."""

    def __init__(self, setup: str, output: Path, start: Start) -> None:
        command = ["train", *SETUPS[setup], *COMMON, "--output", str(output)]
        self.output = output
        self.process = start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def wait_for_start(self) -> None:
        """Waits until the log is open: from then on there is something to lose."""
        before = {log: log.stat().st_mtime_ns for log in self.output.glob("**/metrics.jsonl")}
        while self.process.poll() is None:
            logs = list(self.output.glob("**/metrics.jsonl"))
            if any(before.get(log) != log.stat().st_mtime_ns for log in logs):
                return
            time.sleep(0.01)

    def kill(self, *, group: bool) -> bool:
        """Kills the process, or its whole group; returns False if it had ended by itself."""
        running = self.process.poll() is None
        if running:
            (os.killpg if group else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        return running

    def finish(self) -> None:
        output, errors = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, errors
        assert json.loads(output)


def members(run: Path) -> list[Path]:
    return sorted(run.glob("seed_*")) or [run]


def assert_same(run: Path, reference: Path) -> None:
    for one, other in zip(members(run), members(reference), strict=True):
        assert compare_runs(one, other) == [], one


def kill_repeatedly(
    setup: str, folder: Path, *, kills: int, start: Start, expect_group_ends: Callable[[int], None]
) -> None:
    reference, run, rng = folder / "reference", folder / "run", random.Random(1)
    began = time.monotonic()
    Training(setup, reference, start).finish()
    longest = 0.3 * (time.monotonic() - began)
    while kills:
        training = Training(setup, run, start)
        training.wait_for_start()
        time.sleep(rng.uniform(0, longest))
        if training.kill(group=rng.random() < 0.5):
            kills -= 1
            expect_group_ends(training.process.pid)
        else:
            assert_same(run, reference)
            shutil.rmtree(run)
    Training(setup, run, start).finish()
    assert_same(run, reference)


def test_kills_change_nothing(tmp_path, start_command, expect_group_ends):
    kill_repeatedly("short", tmp_path, kills=2, start=start_command, expect_group_ends=expect_group_ends)


@pytest.mark.soak
@pytest.mark.parametrize("setup", [name for name in SETUPS if name != "short"])
def test_twenty_kills_change_nothing(setup, tmp_path, expect_group_ends):
    kill_repeatedly(setup, tmp_path, kills=20, start=start_process, expect_group_ends=expect_group_ends)
