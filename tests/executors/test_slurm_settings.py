"""`--slurm KEY=VALUE` and the options of a job as options of sbatch. No cluster is needed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.executors.opening import open_executor
from rl_training.experiment.executors.slurm.settings import read_settings, time_in_minutes


def sbatch(slurm: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    found = read_settings(ExecutorOptions("slurm", slurm=slurm or {}, **options))
    return dict(found.parameters["additional_parameters"])


def test_options_of_a_job_become_options_of_sbatch():
    found = sbatch({"partition": "long", "account": "me", "time": "60"}, cpus=4, gpus=1.0, memory=8 * 1024**3)
    assert found == {
        "partition": "long", "account": "me", "time": "60", "cpus-per-task": 4, "gpus-per-node": 1, "mem": "8192M",
        "requeue": True, "signal": "B:USR2@90",
    }  # fmt: skip


def test_underscores_stand_for_hyphens_and_true_for_a_flag():
    assert sbatch({"mail_type": "END", "exclusive": "true"}).items() >= {"mail-type": "END", "exclusive": True}.items()


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("60", 60), ("90:30", 90.5), ("12:00:00", 720), ("2-00", 2880), ("1-12:30", 2190), ("0-00:00:30", 0.5)],
)
def test_time_limits_are_read_as_sbatch_reads_them(text, minutes):
    assert time_in_minutes(text) == minutes


@pytest.mark.parametrize(("time", "delay"), [("1", 10), ("5", 50), ("60", 90), (None, 90)])
def test_the_time_to_save_is_a_sixth_of_a_short_limit(time, delay):
    assert sbatch({} if time is None else {"time": time})["signal"] == f"B:USR2@{delay}"


def test_the_time_to_save_and_the_name_can_be_set():
    found = read_settings(ExecutorOptions("slurm", slurm={"signal-delay-s": "300", "job-name": "mine", "time": "60"}))
    assert (found.name, found.parameters["additional_parameters"]["signal"]) == ("mine", "B:USR2@300")


MISTAKES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "--slurm has no key 'partion'; did you mean partition?": ({"partion": "long"}, {}),
    "--slurm has no key 'xyz'; use a long option of sbatch, such as partition": ({"xyz": "1"}, {}),
    "--slurm array is set by rl-training: --jobs N limits the jobs that run at a time": ({"array": "0-3"}, {}),
    "--slurm time must be minutes (60), hours (12:00:00) or days-hours (2-00), got '1 h'": ({"time": "1 h"}, {}),
    "--slurm signal-delay-s=60 must be shorter than --slurm time=1": ({"time": "1", "signal_delay_s": "60"}, {}),
    "--slurm signal-delay-s must be a number of seconds from 1 to 65535, got '1m'": ({"signal_delay_s": "1m"}, {}),
    "--slurm job-name may have letters, digits, '.', '_' and '-', got 'a,b'": ({"job_name": "a,b"}, {}),
    "--memory and --slurm mem set the same thing; give one of them": ({"mem": "8G"}, {"memory": 1024**3}),
    "--gpus must be a whole number with --executor slurm, got 0.5; where the cluster shares GPUs, use --slurm "
    "gres=shard:1": ({}, {"gpus": 0.5}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_in_one_sentence(message):
    slurm, options = MISTAKES[message]
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole message is compared
        sbatch(slurm, **options)
    assert str(error.value) == message


@pytest.mark.skipif(find_spec("submitit") is None, reason="submitit is not installed")
def test_without_sbatch_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ValueError,
        match=r"start the command on a login node .*`train --seed`.*`bench --cell`",
    ):
        open_executor(ExecutorOptions("slurm"))
