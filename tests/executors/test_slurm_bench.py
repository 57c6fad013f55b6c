"""Benches on a real Slurm cluster of one node have the same table and weights as on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from slurm_cluster import slurm_command, start_now, wait_for  # type: ignore[import-not-found]

sys.path.pop(0)

pytestmark = [pytest.mark.usefixtures("slurm_node"), pytest.mark.timeout(300)]
TINY = ["bench", "--algos", "dqn", "--envs", "CartPole-v1", "--seeds", "0", "--steps", "1000",
        "--episodes", "2", "--set", "hidden_sizes=[8]", "--set", "learning_starts=100", "--set", "eval_interval=0",
        "--set", "checkpoint_interval=100", "--json"]  # fmt: skip


def bench(output: Path, command: list[str], *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "rl_training.cli", *command, "--output", str(output), *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(process: subprocess.Popen[str], seconds: float = 200) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return dict(json.loads(output))


def table(found: dict[str, Any]) -> list[Any]:
    return [(cell["cell"], cell["state"], cell["scores"]) for cell in found["cells"]]


def weights(output: Path) -> dict[str, bytes]:
    """The networks and optimizers in the last checkpoint of every run."""
    last = [max(folder.iterdir()) for folder in output.glob("*/seed_*/checkpoints")]
    return {
        str((step / name).relative_to(output)): (step / name).read_bytes()
        for step in last
        for name in ("learner.safetensors", "updater.safetensors")
    }


def jobs_of(output: Path) -> list[str]:
    return sorted(path.name.removesuffix("_submitted.pkl") for path in (output / ".slurm").glob("*_submitted.pkl"))


@pytest.mark.timeout(600)
def test_ctrl_c_a_killed_driver_and_a_time_limit_change_neither_table_nor_weights(tmp_path):
    alone, disturbed, options = tmp_path / "local", tmp_path / "slurm", ["--executor", "slurm", "--slurm", "time=5"]
    undisturbed = bench(alone, TINY, "--executor", "local")
    driver = bench(disturbed, TINY, *options)
    wait_for(lambda: steps_saved(disturbed) > 0)
    driver.send_signal(signal.SIGINT)
    stdout, _ = driver.communicate(timeout=120)
    assert (driver.returncode, json.loads(stdout)["status"]) == (128 + signal.SIGINT, "stopped")
    assert slurm_command("squeue", "-h") == ""

    stopped_at = steps_saved(disturbed)
    driver = bench(disturbed, TINY, *options)
    wait_for(lambda: steps_saved(disturbed) > stopped_at)
    driver.kill()
    driver.wait()
    job = max(jobs_of(disturbed), key=int)
    slurm_command("scancel", "--batch", "--signal=USR2", job)  # as before the time limit
    start_now(job)

    found = report(bench(disturbed, TINY, *options))
    assert table(found) == table(report(undisturbed))
    assert weights(disturbed) == weights(alone)
    assert len(jobs_of(disturbed)) == 2  # none after the driver was killed


def steps_saved(output: Path) -> int:
    return max((int(path.name.removeprefix("step_")) for path in output.glob("*/seed_0/checkpoints/step_*")), default=0)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_bench_of_12_cells_has_the_same_table_and_weights_as_on_this_machine(tmp_path):
    envs = "CartPole-v0,CartPole-v1,Acrobot-v1,MountainCar-v0,FrozenLake-v1,Taxi-v4"
    command = ["bench", "--algos", "dqn,ppo", "--envs", envs, "--seeds", "0", "--steps", "200", "--episodes", "2",
               "--set", "hidden_sizes=[8]", "--json"]  # fmt: skip
    alone, slurmed = tmp_path / "local", tmp_path / "slurm"
    expected = table(report(bench(alone, command, "--jobs", "2"), 1400))
    assert len(expected) == 12
    assert table(report(bench(slurmed, command, "--jobs", "2", "--executor", "slurm"), 1400)) == expected
    assert weights(slurmed) == weights(alone)
    assert len(jobs_of(slurmed)) == 12


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_longer_than_a_time_limit_of_one_minute_ends_with_the_weights_of_an_undisturbed_one(tmp_path):
    command = [*TINY, "--steps", "5000", "--set", "env_wrappers=[slow_steps:SlowSteps]"]
    alone, limited = tmp_path / "local", tmp_path / "slurm"
    expected = table(report(bench(alone, command), 500))
    driver = bench(limited, command, "--executor", "slurm", "--slurm", "time=1")
    while driver.poll() is None:
        jobs = slurm_command("squeue", "-h", "-t", "PENDING", "-o", "%i").split()
        time.sleep(1.5)  # see `start_now`
        for job in jobs:
            subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], capture_output=True, timeout=60)
    assert table(report(driver)) == expected
    assert weights(limited) == weights(alone)
    assert any("DUE TO JOB REQUEUE" in log.read_text() for log in (limited / ".slurm").glob("*_log.out"))
