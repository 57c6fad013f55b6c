"""Lists and datasets are given once, so that none is lost without a message; standard streams may be closed."""

import subprocess
import sys

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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_trains_without_standard_streams(tmp_path, cartpole, closed):
    words = [sys.executable, "-m", "rl_training", *cartpole, "--output", str(tmp_path / "run")]
    ended = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], check=False)
    assert ended.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()
