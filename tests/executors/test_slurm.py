"""The executor `slurm` on a real Slurm cluster of one node, which the tests start and end."""

from __future__ import annotations

import pickletools
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.executors.base import Command, ExecutorOptions, Handle
from rl_training.experiment.executors.opening import open_executor
from rl_training.experiment.executors.slurm import executor as slurm
from rl_training.experiment.executors.slurm import job as slurm_job

sys.path.insert(0, str(Path(__file__).parent))
from slurm_cluster import slurm_command, start_now, wait_for  # type: ignore[import-not-found]

sys.path.pop(0)

pytestmark = [pytest.mark.usefixtures("slurm_node"), pytest.mark.timeout(300)]


@pytest.fixture
def executor() -> slurm.SlurmExecutor:
    return opened()


def opened(**options: Any) -> slurm.SlurmExecutor:
    found = open_executor(ExecutorOptions("slurm", **options))
    assert isinstance(found, slurm.SlurmExecutor)
    return found


def counting(run: Path, steps: int) -> Command:
    return Command(run.name, ("counting_work", str(run), str(steps)), run / ".work")


def starts(run: Path) -> int:
    file = run / "starts.txt"
    return file.read_text().count("start") if file.exists() else 0


def assert_started(handle: Handle, run: Path, times: int) -> None:
    wait_for(lambda: handle.poll() is None and starts(run) == times)


def ends(*handles: Handle, seconds: float = 120) -> list[int | None]:
    wait_for(lambda: all(handle.poll() is not None for handle in handles), seconds)
    return [handle.poll() for handle in handles]


def test_commands_are_one_job_array_that_runs_as_many_at_a_time_as_asked(tmp_path):
    executor = opened(jobs=2, cpus=1)
    handles = [executor.submit(counting(tmp_path / f"run_{index}", 5)) for index in range(3)]
    assert not any(handle.started for handle in handles)
    assert ends(*handles) == [0, 0, 0]
    jobs = [handle.job for handle in handles]
    array = jobs[0].split("_")[0]
    assert jobs == [f"{array}_{index}" for index in range(3)]
    script = (tmp_path / ".slurm" / f"{array}_submission.sh").read_text()
    assert "--array=0-2%2" in script
    assert "--cpus-per-task=1" in script
    assert [starts(tmp_path / f"run_{index}") for index in range(3)] == [1, 1, 1]
    assert (tmp_path / "run_0" / ".work" / "stdout.txt").read_text() == "done\n"


def test_pickles_hold_only_the_name_of_a_function_and_strings(executor, tmp_path):
    assert ends(executor.submit(counting(tmp_path / "run", 1))) == [0]
    (pickle,) = (tmp_path / ".slurm").glob("*_submitted.pkl")
    words = [argument for _, argument, _ in pickletools.genops(pickle.read_bytes()) if isinstance(argument, str)]
    modules = {word for word in words if "." in word and "/" not in word}
    assert modules == {"submitit.core.utils", "rl_training.experiment.executors.slurm.job"}


def test_the_time_limit_requeues_a_job_which_then_continues(executor, tmp_path):
    run = tmp_path / "run"
    handle = executor.submit(counting(run, 40))
    wait_for(lambda: handle.poll() is None and (run / "checkpoints" / "step_3").exists())
    slurm_command("scancel", "--batch", "--signal=USR2", handle.job)  # as Slurm does before the time limit
    start_now(handle.job)
    assert ends(handle) == [0]
    assert starts(run) == 2


def test_a_preempted_job_which_slurm_requeues_continues(executor, tmp_path):
    run = tmp_path / "run"
    handle = executor.submit(counting(run, 40))
    wait_for(lambda: handle.poll() is None and (run / "checkpoints" / "step_3").exists())
    slurm_command("scontrol", "requeue", handle.job)
    start_now(handle.job)
    assert ends(handle) == [0]
    assert starts(run) == 2


def test_a_job_without_progress_fails_after_three_attempts(executor, tmp_path):
    run = tmp_path / "run"
    handle = executor.submit(counting(run, 0))
    for attempt in range(slurm_job.IDLE_ATTEMPTS):
        assert_started(handle, run, attempt + 1)
        slurm_command("scancel", "--batch", "--signal=USR2", handle.job)
        start_now(handle.job)
    assert ends(handle) == [1]
    assert "no checkpoint was saved in 3 attempts" in str(handle.error)
    assert str(handle.error) in (run / ".work" / "log.txt").read_text()


def test_a_job_that_the_user_cancels_is_stopped_and_not_requeued(executor, tmp_path):
    run = tmp_path / "run"
    handle = executor.submit(counting(run, 1000))
    wait_for(lambda: handle.poll() is None and (run / "checkpoints" / "step_3").exists())
    slurm_command("scancel", handle.job)
    assert ends(handle) == [128 + signal.SIGTERM]
    assert (handle.stopped, starts(run)) == (True, 1)
    assert handle.error == f"job {handle.job} was cancelled; repeat the command to continue"


def test_a_request_to_stop_ends_running_and_waiting_jobs(tmp_path):
    executor = opened(jobs=1)
    running, waiting = [executor.submit(counting(tmp_path / name, 1000)) for name in ("running", "waiting")]
    wait_for(lambda: running.poll() is None and (tmp_path / "running" / "checkpoints" / "step_3").exists())
    assert (running.started, waiting.started) == (True, False)
    for handle in (running, waiting):
        handle.stop(signal.SIGINT)
    assert ends(running, waiting) == [128 + signal.SIGTERM, -signal.SIGTERM]
    assert not (tmp_path / "waiting" / "starts.txt").exists()


def test_a_job_that_does_not_end_after_a_request_is_cancelled(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "SAVE_SECONDS", 0.5)
    command = Command("sleep", ("timeit", "-n1", "-r1", "-s", "import signal as s, time; s.signal(15, s.SIG_IGN)",
                          "time.sleep(100)"), tmp_path / "run" / ".work")  # fmt: skip
    handle = executor.submit(command)
    wait_for(lambda: handle.poll() is None and handle.started)
    time.sleep(2)
    handle.stop(signal.SIGTERM)
    assert ends(handle)[0] != 0


def test_a_failed_work_has_its_exit_code_and_its_log(executor, tmp_path):
    handle = executor.submit(counting(tmp_path / "run", -1))
    assert ends(handle) == [1]
    assert (tmp_path / "run" / ".work" / "log.txt").read_text() == "error: no number below 0\n"


def test_a_job_that_ends_without_a_trace_is_submitted_again_and_then_has_failed(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "LOST_JOBS", 1)
    run = tmp_path / "run"
    handle = executor.submit(counting(run, 0))
    for attempt in range(2):
        assert_started(handle, run, attempt + 1)
        slurm_command("scancel", "--batch", "--signal=KILL", handle.job)
    assert ends(handle) == [1]
    assert "ended without a result" in str(handle.error)


def test_a_second_executor_attaches_to_the_jobs_of_the_first(executor, tmp_path):
    run = tmp_path / "run"
    first = executor.submit(counting(run, 20))
    assert first.poll() is None
    second = opened().submit(counting(run, 20))
    assert ends(second) == [0]
    assert (second.job, starts(run)) == (first.job, 1)


def test_a_job_that_may_never_start_is_reported_once(tmp_path, capsys):
    handle = opened(slurm={"time": "1000"}).submit(counting(tmp_path / "run", 1))
    wait_for(lambda: handle.poll() is None and "PartitionTimeLimit" in capsys.readouterr().err)
    time.sleep(1)
    assert handle.poll() is None
    assert capsys.readouterr().err == ""
    handle.stop(signal.SIGTERM)
    assert ends(handle) == [-signal.SIGTERM]


def test_what_sbatch_refuses_is_reported_in_one_sentence(tmp_path, capfd):
    handle = opened(slurm={"partition": "nope"}).submit(counting(tmp_path / "run", 1))
    with pytest.raises(ValueError, match=r"^Slurm refused the jobs: .*invalid partition.*nope") as error:
        handle.poll()
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
