"""`train --seeds` by an executor: its jobs, their division, results, errors and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rl_training.cli import app
from rl_training.cli.train import read_config
from rl_training.experiment.executors.base import Command, Handle
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run import run_training
from rl_training.experiment.run_directory import locked_file
from rl_training.experiment.seeds.jobs import divide, train_command
from rl_training.experiment.seeds.sweep import train_seeds

BC = {"algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 200}, "total_timesteps": 20,
      "eval_interval": 10, "eval_episodes": 1, "algo_kwargs": {"hidden_sizes": [8], "batch_size": 16}}  # fmt: skip
PPO = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "eval_episodes": 1,
       "algo_kwargs": {"hidden_sizes": [8], "batch_size": 16, "num_steps": 32}}  # fmt: skip

starts_processes = pytest.mark.timeout(600)  # each imports torch, which takes long on a busy machine


def configs(folder, seeds, values=BC):
    return ExperimentManager.setup({**values, "output_dir": str(folder)}).seed_configs(seeds)


def seeds_of(groups) -> list[list[int]]:
    return [[config.seed for config in group] for group in groups]


def test_seeds_are_divided_evenly_and_in_order(tmp_path):
    many = configs(tmp_path, range(10))
    assert seeds_of(divide(many, 4, fresh=False)) == [[0, 1], [2, 3, 4], [5, 6, 7], [8, 9]]
    assert seeds_of(divide(many[:3], 8, fresh=False)) == [[0], [1], [2]]


def test_seeds_that_were_together_stay_together_with_another_number_of_devices(tmp_path):
    for first, members in ((0, [0, 1]), (2, [2, 3])):
        folder = tmp_path / f"seed_{first}" / ".work"
        folder.mkdir(parents=True)
        (folder / "seeds.json").write_text(json.dumps(members))
    many = configs(tmp_path, range(8))
    assert seeds_of(divide(many, 2, fresh=False)) == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert seeds_of(divide(many, 8, fresh=False)) == [[0, 1], [2, 3], [4], [5], [6], [7]]
    assert seeds_of(divide(many[1:4], 8, fresh=False)) == [[2, 3], [1]]
    assert seeds_of(divide(many, 2, fresh=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


OWN = """
import gymnasium

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
"""


@pytest.mark.parametrize(
    ("target", "given", "overrides"),
    [
        ("ppo", {"env_id": "CartPole-v1", "device": "cpu", "threads": 2, "compile": "off"}, ["learning_rate=1e-5"]),
        ("iql/pendulum", {"dataset": "[{kind: random, rows: 50}, {kind: random, rows: 60}]"}, ["log=[]"]),
        ("bc", {"dataset": "a b's.csv", "env_id": None, "dataset_columns": {"obs": "o\"ß"}, "allow": ["nan"]}, []),
        ("sac", {"env_id": "own:Own"}, ["schedules.learning_rate={kind: linear, start: 0.001, end: 0}"]),
        ("dqn", {"env_id": "CartPole-v1"}, ["env_wrappers=[{wrapper: 'gymnasium.wrappers:TimeLimit', "
                                            "max_episode_steps: 9}]", "early_stopping={patience: 2}"]),
    ],
)  # fmt: skip
def test_the_command_of_a_job_holds_the_whole_config(tmp_path, monkeypatch, target, given, overrides):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    config = read_config(target, {**given, "output_dir": str(tmp_path / "all")}, overrides, [])
    words = train_command(ExperimentManager(config).seed_configs([3, 5]), fresh=False)
    assert words[:2] == ("rl_training.cli", "train")
    assert words[-6:] == ("--seeds", "3,5", "--output", str(tmp_path / "all"), "--json", "--quiet")
    assignments = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    assert read_config(words[2], {"output_dir": str(tmp_path / "all")}, assignments, []) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "ray"], "--executor needs --seeds, because one run is one process"),
        (["--jobs", "2"], "--jobs needs --seeds, because one run is one process"),
        (["--devices", "0,1"], "--devices needs --seeds, because one run is one process; "
                               "--device cuda:1 chooses the GPU of one run"),
        (["--seeds", "0-1", "--jobs", "2", "--profile"],
         "--profile measures this process, and with --jobs seeds train in others; give one --seed"),
        (["--seeds", "0-1", "--executor", "pbs"], "--executor must be local, ray or slurm, got 'pbs'"),
        (["--seeds", "0-1", "--devices", "0", "--device", "cpu"],
         "--devices needs device auto or cuda, and the config has device cpu"),
        (["--seeds", "0-1", "--cpus", "9999"], "--cpus 9999 is more than the cores of this machine"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused_in_one_sentence(tmp_path, options, message):
    command = ["train", "ppo", "CartPole-v1", "--output", str(tmp_path / "all"), *options]
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, ended.stderr.startswith(f"error: {message}"), ended.stderr.count("\n")) == (2, True, 1)
    assert list(tmp_path.iterdir()) == []


def weights(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.glob("checkpoints/*/*.safetensors")}


class Recorder(LocalExecutor):
    """Keeps the names of the jobs that it has started."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.names: list[str] = []

    def submit(self, command: Command) -> Handle:
        self.names.append(command.name)
        return super().submit(command)


@pytest.mark.usefixtures("forked_jobs")
def test_seeds_in_jobs_end_as_single_runs_do_and_are_not_repeated(tmp_path, capfd):
    seeds = configs(tmp_path / "all", (0, 1))
    first = train_seeds(seeds, executor=LocalExecutor(2), quiet=False)
    assert [(r.run_dir.name, r.status, r.steps, r.trained) for r in first] == [
        ("seed_0", "finished", 20, True),
        ("seed_1", "finished", 20, True),
    ]
    assert capfd.readouterr().err.startswith("2 seeds in 2 jobs\n")
    (alone,) = configs(tmp_path / "alone", [1])
    assert weights(run_training(alone).run_dir) == weights(first[1].run_dir) != {}
    again = train_seeds(seeds, executor=LocalExecutor(2))
    assert [(r.steps, r.trained) for r in again] == [(20, False)] * 2
    assert "finished earlier; nothing was trained" in capfd.readouterr().err


@pytest.mark.usefixtures("forked_jobs")
def test_a_user_error_of_a_job_stops_all_and_leaves_no_directory(tmp_path):
    executor = Recorder(1)
    with pytest.raises(ValueError, match="env_id 'CartPol-v1' not found"):
        train_seeds(configs(tmp_path / "all", [0, 1], {**PPO, "env_id": "CartPol-v1"}), executor=executor)
    assert (executor.names, list(tmp_path.iterdir())) == (["seed 0"], [])


@pytest.mark.usefixtures("forked_jobs")
def test_another_failure_of_a_job_names_its_seeds(tmp_path):
    diverging = {**PPO, "algo_kwargs": {**PPO["algo_kwargs"], "learning_rate": 1e30}}  # type: ignore[dict-item]
    with pytest.raises(RuntimeError, match="seed 7: training diverged"):
        train_seeds(configs(tmp_path / "all", [7], diverging), executor=LocalExecutor(1))


class Elsewhere(LocalExecutor):
    """Runs every job in a process of its own, as on another machine."""

    remote = True


@pytest.mark.slow  # a dozen processes that import torch
@starts_processes
def test_fresh_starts_remote_seeds_over_once(tmp_path):
    seeds = configs(tmp_path, (0, 1))
    train_seeds(seeds, executor=Elsewhere(1))
    written = [(tmp_path / f"seed_{seed}" / "result.json").stat().st_mtime_ns for seed in (0, 1)]
    longer = configs(tmp_path, (0, 1), {**BC, "total_timesteps": 30})
    results = train_seeds(longer, executor=Elsewhere(2), fresh=True)
    assert [(r.steps, r.trained) for r in results] == [(30, True)] * 2
    assert [(tmp_path / f"seed_{seed}" / "result.json").stat().st_mtime_ns for seed in (0, 1)] != written


def command_line(folder: Path, *options: str) -> list[str]:
    values = [f"--set={key}={json.dumps(value)}" for key, value in {**BC, "checkpoint_interval": 50}.items()
              if key not in ("algo", "total_timesteps")]  # fmt: skip
    return [sys.executable, "-m", "rl_training.cli", "train", "bc", *values, "--seeds", "0-3", "--output",
            str(folder), "--quiet", "--json", *options]  # fmt: skip


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = command_line(folder, *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow  # a dozen processes that import torch
@starts_processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_every_seed_and_the_same_command_continues(tmp_path, number):
    process = start(tmp_path / "all", "--jobs", "2", "--steps", "1000000", "--set", "eval_interval=0")
    try:
        while len(list(tmp_path.glob("all/seed_*/checkpoints/step_*"))) < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        report: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
    finally:
        process.kill()
    assert (process.returncode, report["status"]) == (128 + number, "stopped")
    assert [run["status"] for run in report["runs"]] == ["stopped"] * 4
    assert report["stop_reason"] == f"stopped by {signal.Signals(number).name}"
    stopped = {run["seed"]: run["steps"] for run in report["runs"]}
    again = configs(tmp_path / "all", range(4), {**BC, "checkpoint_interval": 50, "total_timesteps": 10**6,
                                                 "eval_interval": 0})  # fmt: skip
    assert seeds_of(divide(again, 7, fresh=False)) == [[0, 1], [2, 3]]
    assert stopped[0] == stopped[1] > 0


@pytest.mark.slow  # a dozen processes that import torch
@starts_processes
def test_killed_and_continued_with_fewer_jobs_seeds_end_the_same_byte_for_byte(tmp_path):
    values = {**BC, "checkpoint_interval": 50, "total_timesteps": 2000, "eval_interval": 0}
    process = start(tmp_path / "all", "--jobs", "2", "--steps", "2000", "--set", "eval_interval=0")
    try:
        while not all(list(tmp_path.glob(f"all/seed_{seed}/checkpoints/step_*")) for seed in (1, 3)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    for seed in range(4):  # a killed process keeps its lock until the kernel has ended it
        with locked_file(tmp_path / "all" / f"seed_{seed}" / ".lock", "a killed process trains on", seconds=30):
            pass
    executor = Recorder(1)
    results = train_seeds(configs(tmp_path / "all", range(4), values), executor=executor)
    assert executor.names == ["seeds 0, 1", "seeds 2, 3"]
    assert [(result.status, result.steps) for result in results] == [("finished", 2000)] * 4
    whole = train_seeds(configs(tmp_path / "whole", (2, 3), values))  # one population in this process
    for result, undisturbed in zip(results[2:], whole, strict=True):
        assert weights(result.run_dir) == weights(undisturbed.run_dir) != {}


def train_all(words: list[str], **settings: Any) -> dict[str, Any]:
    ended = subprocess.run(words, capture_output=True, text=True, timeout=500, **settings)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@pytest.mark.slow  # starts Ray and three processes that import torch
@starts_processes
def test_seeds_on_a_ray_node_without_the_folder_come_back_as_they_are_here(ray_nodes, tmp_path):
    if ray_nodes.second is None:
        pytest.skip(ray_nodes.reason)
    words = command_line(ray_nodes.hidden / "seeds", "--steps", "20", "--executor", "ray", "--cpus", "2")
    report = train_all([*words, "--address", ray_nodes.address], env={**os.environ, **ray_nodes.variables})
    assert_as_single_runs(report, tmp_path)


@pytest.mark.slow  # starts Slurm and three processes that import torch
@starts_processes
def test_seeds_on_slurm_are_as_they_are_here(tmp_path):
    cluster = [sys.executable, str(Path(__file__).with_name("slurm_cluster.py"))]
    tried = subprocess.run([*cluster, "true"], capture_output=True, text=True)
    if find_spec("submitit") is None or tried.returncode:
        pytest.skip(tried.stderr or "submitit is not installed")
    words = command_line(tmp_path / "seeds", "--steps", "20", "--executor", "slurm")
    assert_as_single_runs(train_all([*cluster, *words]), tmp_path)


def assert_as_single_runs(report: dict[str, Any], folder: Path) -> None:
    assert [(run["seed"], run["status"]) for run in report["runs"]] == [(seed, "finished") for seed in range(4)]
    (alone,) = configs(folder / "alone", [3], {**BC, "checkpoint_interval": 50})
    assert weights(run_training(alone).run_dir) == weights(Path(report["runs"][3]["run_dir"])) != {}
