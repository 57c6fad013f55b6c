"""A bench: its plan, its cells, signals, and a second start."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_training.experiment.bench import cell as cell_module
from rl_training.experiment.bench.cell import seconds_left
from rl_training.experiment.bench.plan import parse_plan, plan_yaml, read_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.reporting.comparison import compare

TINY = {"dataset": {"kind": "random", "rows": 200}, "hidden_sizes": [8], "batch_size": 8, "eval_interval": 0}
TWO_CELLS = {"algos": ["bc", "iql"], "envs": ["Pendulum-v1"], "seeds": [0, 1], "steps": 400, "episodes": 1,
             "set": {**TINY, "checkpoint_interval": 50}}  # fmt: skip


def test_every_learner_meets_every_environment_and_dataset():
    plan = parse_plan({"algos": "sac,ppo", "configs": "iql/pendulum", "envs": "A-v1,B/C-v2", "datasets": "d/x.npz"})
    assert [cell.name for cell in plan.cells()] == [
        "sac-A-v1-x", "sac-B-C-v2-x", "ppo-A-v1-x", "ppo-B-C-v2-x", "iql-pendulum-A-v1-x", "iql-pendulum-B-C-v2-x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("datasets", "names"),
    [
        (["a/train.npz", "b/train.npz", "b/test.npz"], ["bc-a-train", "bc-b-train", "bc-test"]),
        (["x.csv", "a/x.csv"], ["bc-x", "bc-a-x"]),
        (["/logs/a/x.npz", "/logs/b/x.npz", "/old/a/x.npz"], ["bc-logs-a-x", "bc-b-x", "bc-old-a-x"]),
        (["a/x.npz", "a/x.parquet"], ["bc-a-x.npz", "bc-a-x.parquet"]),
    ],
)
def test_files_of_the_same_name_are_named_with_their_folders(datasets, names):
    plan = parse_plan({"algos": "bc", "datasets": datasets, "score": "ope", "test": "t.npz"})
    assert [cell.name for cell in plan.cells()] == names


def test_configs_of_the_same_name_are_named_with_their_folders():
    plan = parse_plan({"configs": ["a/iql.yaml", "b/iql.yaml"]})
    assert [cell.name for cell in plan.cells()] == ["a-iql", "b-iql"]


@pytest.mark.usefixtures("forked_jobs")
def test_a_plan_under_which_nothing_was_trained_is_replaced(tmp_path):
    plan = {**TWO_CELLS, "algos": ["bc"], "envs": ["Absent-v1"], "seeds": [0], "steps": 4}
    (bench := Bench(parse_plan(plan), tmp_path)).run()
    assert bench.status == "failed"
    (again := Bench(parse_plan({**plan, "envs": ["Pendulum-v1"]}), tmp_path)).run()
    assert (again.status, read_plan(tmp_path)) == ("done", again.plan)


def test_a_config_brings_its_own_environment():
    (cell,) = (plan := parse_plan({"configs": ["sac/pendulum"], "steps": 100})).cells()
    config = cell.config(plan)
    assert (cell.name, config.env_id, config.total_timesteps) == ("sac-pendulum", "Pendulum-v1", 100)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "a bench needs algorithms or configs; give --algos or --configs"),
        ({"algos": ["sac"]}, "algos need environments; give --envs, or envs in a plan file (configs name their own)"),
        ({"algos": ["sac", "sac"], "envs": ["A-v1"]}, "two cells have the name sac-A-v1; give each"),
        ({"algos": ["bc"], "envs": ["A"], "datasets": ["a/x.npz", "a/x.npz"]}, "two cells have the name bc-A-x"),
        ({"algos": ["sac"], "envs": ["A-v1"], "seeds": [1, 1]}, "seeds must not repeat a seed, got [1, 1]"),
        ({"algs": ["sac"]}, "algs: unknown key; did you mean algos?"),
        ({"algos": ["sac"], "envs": ["A-v1"], "episodes": 0}, "episodes: must be greater than or equal to 1, got 0"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(values, message):
    with pytest.raises(ConfigError) as caught:
        parse_plan(values)
    assert str(caught.value).startswith(message)


def test_an_invalid_cell_is_reported_before_any_run_starts(tmp_path):
    plan = parse_plan({"algos": "bc", "envs": "Pendulum-v1", "set": {"gama": 0.9}})
    with pytest.raises(ConfigError, match=r"bc-Pendulum-v1: algo_kwargs\.gama: unknown key; did you mean gamma\?$"):
        Bench(plan, tmp_path / "bench")
    plan = parse_plan({"algos": "bc,iql", "envs": "Pendulum-v1", "set": {"own_option": 0.9}})
    with pytest.raises(ConfigError, match=r"own_option: unknown key; --set is for all cells, .* in --configs$"):
        Bench(plan, tmp_path / "bench")
    assert not (tmp_path / "bench").exists()


def test_a_plan_reads_back_as_it_was_written(tmp_path):
    plan = parse_plan(TWO_CELLS)
    (tmp_path / "bench.yaml").write_text(plan_yaml(plan))
    assert read_plan(tmp_path) == plan


def test_another_plan_in_the_directory_is_refused_by_its_keys(tmp_path):
    (tmp_path / "bench.yaml").write_text(plan_yaml(parse_plan(TWO_CELLS)))
    (tmp_path / "bc-Pendulum-v1" / "seed_0").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"holds another bench \(seeds: \[0, 1\] there, \[0\] here; steps: 400 there"):
        Bench(parse_plan({**TWO_CELLS, "seeds": [0], "steps": 10}), tmp_path).run()


def test_a_directory_of_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"is not a bench directory and is not empty \(thesis\.tex, …\)"):
        Bench(parse_plan(TWO_CELLS), tmp_path).run()


def test_one_bench_at_a_time_works_in_a_directory(tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another bench is running"):
            Bench(parse_plan(TWO_CELLS), tmp_path).run()


class Elsewhere(LocalExecutor):
    """Runs every work in a process of its own, as on another machine."""

    remote = True


@pytest.mark.usefixtures("forked_jobs")
def test_a_remote_executor_runs_a_whole_cell_as_one_command(tmp_path):
    bench = Bench(parse_plan({**TWO_CELLS, "algos": ["bc"], "seeds": [0], "steps": 4}), tmp_path)
    states: set[str] = set()
    bench.run(executor=Elsewhere(1), watch=lambda cells: states.update(cell.state for cell in cells))
    (cell,) = bench.cells
    assert (bench.status, states >= {"training", "done"}, cell.error) == ("done", True, None)
    assert [run["score"]["episodes"] for run in (cell.result or {})["runs"]] == [1]
    assert json.loads((cell.folder / ".work" / "stdout.txt").read_text())["cells"][0]["state"] == "done"


@pytest.mark.usefixtures("forked_jobs")
def test_a_remote_cell_that_fails_is_reported_with_the_error_of_its_training(tmp_path):
    bench = Bench(parse_plan({**TWO_CELLS, "algos": ["bc"], "envs": ["Pendulun-v1"]}), tmp_path)
    bench.run(executor=Elsewhere(1))
    assert (bench.status, str(bench.cells[0].error).startswith("env_id 'Pendulun-v1' not found")) == ("failed", True)


def test_a_cell_that_another_process_runs_is_not_started(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_module, "LOCK_SECONDS", 0.0)
    (tmp_path / "bench.yaml").write_text(plan_yaml(plan := parse_plan({**TWO_CELLS, "algos": ["bc"]})))
    (tmp_path / "bc-Pendulum-v1").mkdir()
    with (tmp_path / "bc-Pendulum-v1" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        bench = Bench(plan, tmp_path)
        bench.run_cell("bc-Pendulum-v1")
    folder = tmp_path / "bc-Pendulum-v1"
    error = f"another process is running this cell in {folder}; repeat the command later for its result"
    assert (bench.status, bench.cells[0].error) == ("failed", error)


def test_a_cell_that_another_process_has_finished_meanwhile_is_not_repeated(tmp_path):
    bench = Bench(parse_plan({**TWO_CELLS, "algos": ["bc"]}), tmp_path)
    (tmp_path / "bc-Pendulum-v1").mkdir()
    (tmp_path / "bc-Pendulum-v1" / "result.json").write_text('{"runs": []}')
    (tmp_path / "bench.yaml").write_text(plan_yaml(bench.plan))
    bench.run_cell("bc-Pendulum-v1")
    assert (bench.status, bench.cells[0].result) == ("done", {"runs": []})
    assert not (tmp_path / "bc-Pendulum-v1" / "log.txt").exists()


@pytest.mark.slow  # six processes that import torch
@pytest.mark.timeout(300)
def test_commands_for_several_cells_may_write_the_plan_at_the_same_moment(tmp_path):
    plan = parse_plan({**TWO_CELLS, "envs": [f"Absent{number}-v1" for number in range(3)]})
    (file := tmp_path / "plan.yaml").write_text(plan_yaml(plan))
    command = [
        sys.executable,
        "-m",
        "rl_training.cli",
        "bench",
        str(file),
        "--output",
        str(tmp_path / "bench"),
        "--json",
    ]
    cells = [cell.name for cell in plan.cells()][:3]
    started = [subprocess.Popen([*command, "--cell", name], stdout=subprocess.PIPE, text=True) for name in cells]
    reports = [json.loads(process.communicate()[0])["cells"][0] for process in started]
    assert [(report["cell"], report["state"]) for report in reports] == [(name, "failed") for name in cells]
    assert all("Absent" in report["error"] for report in reports)  # its training was started


def test_time_left_goes_by_the_pace_since_the_start():
    assert seconds_left(10.0, before=0.5, now=0.75) == 10.0  # a quarter took ten seconds, and a quarter is left
    assert seconds_left(10.0, before=0.5, now=0.5) is None


def start(plan: dict[str, object], directory: Path) -> subprocess.Popen[bytes]:
    """The command, in a process group of its own as a shell would give it."""
    file = directory.with_suffix(".yaml")
    file.write_text(json.dumps(plan))
    command = [sys.executable, "-m", "rl_training.cli", "bench", str(file), "--jobs", "1", "--output", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def wait_for(pattern: str, directory: Path, process: subprocess.Popen[bytes]) -> None:
    while not list(directory.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.01)


def written(directory: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in directory.rglob("*") if file.is_file()}


@pytest.mark.slow  # a minute, most of it the start of processes
@pytest.mark.timeout(300)
def test_killed_half_way_and_run_again_it_repeats_nothing_and_ends_the_same(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    undisturbed, process = start({**TWO_CELLS, "algos": ["iql"]}, whole), start(TWO_CELLS, killed)
    try:
        wait_for("iql-Pendulum-v1/seed_1/checkpoints/step_*", killed, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    first = written(killed / "bc-Pendulum-v1")
    bench = Bench(parse_plan(TWO_CELLS), killed)
    assert [cell.state for cell in bench.cells] == ["done", "waiting"]
    bench.run()
    assert (bench.status, undisturbed.wait()) == ("done", 0)
    assert written(killed / "bc-Pendulum-v1") == first
    assert compare(killed).tasks[0].entries[1] == compare(whole).tasks[0].entries[0]


@pytest.mark.slow  # a minute, most of it the start of processes
@pytest.mark.timeout(300)
def test_a_signal_is_passed_on_once_and_every_cell_saves(tmp_path):
    # A terminal sends Ctrl-C to the whole group; SIGTERM goes to one process.
    sending = {signal.SIGTERM: os.kill, signal.SIGINT: os.killpg}
    benches = {number: start({**TWO_CELLS, "steps": 1_000_000}, tmp_path / number.name) for number in sending}
    try:
        for number, process in benches.items():
            wait_for("bc-Pendulum-v1/seed_0/checkpoints/step_*", tmp_path / number.name, process)
            sending[number](process.pid, number)
        assert [process.wait(60) for process in benches.values()] == [143, 130]
    finally:
        for process in benches.values():
            process.kill()
    for number in sending:
        assert_saved(tmp_path / number.name)


def assert_saved(bench: Path) -> None:
    ended = json.loads((bench / "bc-Pendulum-v1" / "seed_0" / "result.json").read_text())
    assert (ended["status"], Path(ended["checkpoint"], "manifest.json").exists()) == ("stopped", True)
    assert not (bench / "iql-Pendulum-v1").exists()
    with (bench / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no process of a cell is left


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize("executor", [LocalExecutor, Elsewhere])
def test_a_warning_of_a_training_is_printed_once_with_the_first_cell(tmp_path, capfd, executor):
    short = {"algos": ["dqn"], "envs": ["CartPole-v1", "Acrobot-v1"], "seeds": [0], "steps": 20, "episodes": 1}
    bench = Bench(parse_plan({**short, "set": {"hidden_sizes": [8], "eval_interval": 0}}), tmp_path)
    bench.run(executor=executor(1))
    assert bench.status == "done"
    warning = "nothing will be learnt in 20 steps: dqn starts learning"
    (line,) = [line for line in capfd.readouterr().err.splitlines() if warning in line]
    assert line.startswith(f"dqn-CartPole-v1: {warning}")
