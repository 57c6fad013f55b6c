"""Exit codes and error messages."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from rl_training.cli.app import Commands
from rl_training.data import readers
from rl_training.envs.checks.user_code import Place
from rl_training.experiment.config import registry
from rl_training.experiment.result import is_run
from rl_training.experiment.user_errors import message_of
from rl_training.reporting import stored_runs

DEBUG = "(--debug shows the traceback)"


def damage(checkpoint: Path) -> None:
    weights = checkpoint / "learner.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1  # one flipped bit
    weights.write_bytes(content)


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--obs", "[0, 0, 0, 0]"], ["resume"]])
def test_a_damaged_checkpoint_that_was_named_is_exit_code_2(cli, run, command):
    damage(newest(run))
    result = cli(*command, newest(run))
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: checkpoint {newest(run)} is damaged: learner.safetensors does not match its checksum; "
        "use another checkpoint or copy this one again\n"
    )


def test_a_damaged_checkpoint_inside_a_run_gives_way_to_the_one_before(cli, run):
    damage(newest(run))
    result = cli("evaluate", run, "--episodes", "1")
    assert result.exit_code == 0
    assert "learner.safetensors does not match its checksum" in result.stderr
    assert str(newest(run)) not in result.stdout


def test_a_run_without_a_good_checkpoint_is_exit_code_2(cli, run):
    for checkpoint in (run / "checkpoints").iterdir():
        damage(checkpoint)
    result = cli("evaluate", run)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"error: the run {run} has no intact checkpoint"


@pytest.mark.parametrize("folder", ["empty", "missing"])
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate"],
        ["predict", "--obs", "[0, 0, 0, 0]"],
        ["export", "--out", "policy.onnx"],
        ["data", "collect", "--steps", "10", "--out", "data.npz"],
        ["dream"],
    ],
)
def test_a_run_without_checkpoints_is_exit_code_2_and_can_be_continued(
    cli, run, command, folder, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(run / "checkpoints")
    if folder == "empty":
        (run / "checkpoints").mkdir()
    result = cli(*command, run)
    assert (result.exit_code, result.stdout) == (2, "")
    hint = f"train it further with `rl-training resume {run}`"
    assert result.stderr.splitlines()[-1] == f"error: the run {run} has no checkpoint; {hint}"


def test_a_run_that_another_process_trains_is_left_alone(cli, cartpole, run):
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = cli(*cartpole, "--output", run)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: another process is training in {run}; wait for it or choose another --output (output_dir in Python)\n",
    )


@pytest.mark.parametrize("output", ["file", "file/run"])
@pytest.mark.parametrize("command", ["train", "bench"])
def test_an_output_that_is_a_file_is_a_user_error(cli, cartpole, tmp_path, command, output):
    (tmp_path / "file").write_text("")
    what = cartpole if command == "train" else ["bench", "--algos", "ppo", "--envs", "CartPole-v1"]
    result = cli(*what, "--output", tmp_path / output)
    sentence = f"{tmp_path}/file is a file, not a directory; choose another --output (output_dir in Python)"
    assert (result.exit_code, result.stderr) == (2, f"error: {sentence}\n")


def test_a_keyword_that_the_environment_does_not_take_is_a_user_error(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--set", "env_kwargs.foo=1", "--output", tmp_path / "run")
    sentence = "env_kwargs: CartPole-v1 has no option 'foo'; remove or correct it"
    assert (result.exit_code, result.stderr) == (2, f"error: {sentence}\n")


def test_a_user_error_leaves_an_empty_directory_that_was_there(cli, cartpole, tmp_path):
    (tmp_path / "run").mkdir()
    assert cli(*cartpole, "--set", "env_kwargs.foo=1", "--output", tmp_path / "run").exit_code == 2
    assert list(tmp_path.glob("**/*")) == [tmp_path / "run"]


def test_numbers_that_diverge_are_exit_code_1(cli, cartpole, tmp_path):
    result = cli(*cartpole, "--set", "learning_rate=1e30", "--output", tmp_path / "run", "--quiet")
    assert result.exit_code == 1
    assert "NaN or infinite" in result.stderr
    assert result.stderr.endswith("; no checkpoint was saved before\n")
    assert not list(tmp_path.glob("run/checkpoints/step_*"))
    stored = json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert (stored["status"], {*stored["metrics"].values()} & {None}, stored["checkpoint"]) == ("failed", {None}, None)
    assert stored["stop_reason"].startswith("training diverged: ")


def test_numbers_that_diverge_leave_the_last_checkpoint(cli, cartpole, tmp_path):
    rising = ["--set", "schedules={learning_rate: {start: 0.0001, end: 1.0e+30}}", "--set", "checkpoint_interval=64"]
    result = cli(*cartpole, *rising, "--output", tmp_path / "run", "--quiet")
    assert result.exit_code == 1, result.stderr
    assert result.stderr.endswith(f"; the last checkpoint is {newest(tmp_path / 'run').name}\n")


@pytest.mark.parametrize("command", [["--debug", "explain", "iqll"], ["explain", "iqll", "--debug"]])
def test_debug_shows_where_an_error_came_from(cli, command):
    result = cli(*command)
    assert result.exit_code == 2
    assert result.stderr.startswith("Traceback")
    assert result.stderr.splitlines()[-1] == "error: no algorithm 'iqll'; did you mean 'iql'?"


def ending_in(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=Commands)

    @app.callback()
    def root(debug: bool = False) -> None: ...

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("first\nsecond"), 2, "error: first\n       second\n"),
        (ImportError('run: pip install "rl-training[mujoco]"'), 2, 'error: run: pip install "rl-training[mujoco]"\n'),
        (
            PermissionError(13, "no", "runs"),
            2,
            "error: runs: no; change its permissions, or give another path\n",
        ),
        (KeyError("step"), 1, "error: KeyError: 'step' in PLACE (--debug shows the traceback)\n"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(143), 143, ""),
    ],
)
def test_the_exit_code_of_an_error(error, code, message):
    result = CliRunner().invoke(ending_in(error), ["fail"])
    line = Path(__file__).read_text().splitlines().index("        raise error") + 1  # the user's code
    place = str(Place(__file__, line))
    assert (result.exit_code, result.stderr) == (code, message.replace("PLACE", place))


def test_an_error_of_the_package_itself_names_no_line_of_other_packages(cli, monkeypatch):
    names: dict[str, Any] = {"torch": torch}
    exec(compile("def mistaken(): torch.nn.Linear(2, 3)(torch.zeros(5))", registry.__file__, "exec"), names)
    monkeypatch.setattr(registry, "list_algorithm_specs", names["mistaken"])
    result = cli("algos")
    assert result.exit_code == 1
    assert re.fullmatch(rf"error: RuntimeError: mat1 and mat2 [^:]*{re.escape(DEBUG)}\n", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "runs/a: Permission denied; change its permissions, or give another path"),
        (errno.EROFS, "runs/a: Read-only file system; give a path that can be written"),
        (errno.ENOSPC, "runs/a: No space left on device; free some space, or give a path on another disk"),
        (errno.EIO, "runs/a: Input/output error"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_the_remedy(number, message):
    assert message_of(OSError(number, os.strerror(number), "runs/a")) == message


def test_a_full_disk_has_a_remedy_without_the_name_of_a_file():
    """Errors of writing to an open file do not name it, and PyArrow has other words."""
    remedy = "; free some space, or give a path on another disk"
    assert message_of(OSError(errno.ENOSPC, "Error writing bytes to file")) == f"No space left on device{remedy}"
    assert message_of(OSError(errno.EDQUOT, "")) == f"{os.strerror(errno.EDQUOT)}{remedy}"


def test_a_file_without_permission_is_not_called_damaged(cli, tmp_path, monkeypatch):
    (tmp_path / "logs.csv").write_text("obs,actions\n")

    def refuse(path: Path, *arguments: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setitem(readers.TABLES, ".csv", refuse)
    result = cli("train", "bc", "--dataset", tmp_path / "logs.csv")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {tmp_path / 'logs.csv'}: Permission denied; change its permissions")


def test_folders_without_permission_are_left_out(cli, run, monkeypatch):
    closed = run.parent / "closed"
    closed.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)
    monkeypatch.setattr(stored_runs, "is_run", lambda path: reading(path, closed) and is_run(path))
    listed = cli("runs", "ls", run.parent)
    assert listed.exit_code == 0
    assert run.name in listed.stdout


def reading(path: Path, closed: Path) -> bool:
    if path == closed:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return True


FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.20 GiB is free"
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            torch.OutOfMemoryError(f"{FULL}. Including non-PyTorch memory, this process has 22.3 GiB memory in use."),
            f"{FULL}; train fewer seeds at once, or lower batch_size, num_envs, buffer_size or the network's sizes",
        ),
        (
            torch.AcceleratorError("CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure'"),
            "CUDA error: unspecified launch failure; "
            "the GPU failed. Repeat the command; training continues from its last checkpoint",
        ),
    ],
)
def test_errors_of_the_gpu_say_what_to_do(error: Exception, message: str):
    assert message_of(error) == f"{message} {DEBUG}"
