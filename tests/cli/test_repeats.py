"""Lists and datasets are given once, so that none is lost without a message; standard streams may be closed."""

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train ppo CartPole-v1 --seeds 0 --seeds 1", "--seeds is given 2 times; give it once, with commas between"),
        (
            "train iql --dataset a --dataset=b --dataset c",
            "--dataset is given 3 times; give it once, for several files",
        ),
        ("evaluate . --ope a --ope b", "--ope is given 2 times; give it once, for several files as a pattern\n"),
        (
            "data check x.csv --allow nan --allow crossing",
            "--allow is given 2 times; give it once, with commas",
        ),
        ("bench --algos ppo --algos dqn", "--algos is given 2 times; give it once, with commas between"),
        ("tune ppo --seeds 0 --seeds 1", "--seeds is given 2 times; give it once, with commas between"),
    ],
)
def test_a_repeated_list_is_refused(cli, command, message):
    result = cli(*command.split())
    assert result.exit_code == 2
    assert message in result.stderr


def test_other_options_may_be_repeated(cli):
    result = cli("train", "ppo", "--set", "a=1", "--set", "b=2", "--json", "--json", "--steps", "1", "--steps", "2")
    assert "times" not in result.stderr
    assert "a: unknown key" in result.stderr
    assert "b: unknown key" in result.stderr


WRITES_TO_ALL = """
import os, sys
from rl_training.cli import open_closed_streams
open_closed_streams()
print("to stdout", flush=True)
print("to stderr", file=sys.stderr, flush=True)
assert sys.stdin.read() == ""
assert os.open("metrics", os.O_CREAT | os.O_WRONLY) > 2
assert os.stat("metrics").st_size == 0
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_standard_stream(tmp_path, closed):
    ended = run_with_streams(closed, sys.executable, "-c", WRITES_TO_ALL, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_run_trains_without_standard_streams(tmp_path, cartpole):
    words = [sys.executable, "-m", "rl_training", *cartpole, "--output", str(tmp_path / "run")]
    assert run_with_streams("<&- >&- 2>&-", *words).returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


def run_with_streams(streams: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = ["sh", "-c", f'"$@" {streams}', "sh", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)
