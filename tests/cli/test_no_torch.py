"""What is only read and looked at costs no import of torch, which takes longer than the work itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COLUMNS = {
    "obs": np.array([0, 1, 2, 10, 11, 12], np.float32),
    "actions": np.linspace(-2, 2, 6, dtype=np.float32),
    "rewards": np.arange(6, dtype=np.float32),
    "next_obs": np.array([1, 2, 3, 11, 12, 13], np.float32),
    "terminated": np.array([0, 0, 1, 0, 0, 0]),
    "truncated": np.array([0, 0, 0, 0, 0, 1]),
}
COMMAND = """
import sys
from typer.testing import CliRunner
from rl_training.cli import app
result = CliRunner().invoke(app, sys.argv[1:])
assert result.exit_code == 0, result.output
assert "torch" not in sys.modules
"""


def run_without_torch(*arguments: object) -> None:
    ran = subprocess.run([sys.executable, "-c", COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def write(path: Path, **changed: np.ndarray) -> Path:
    columns = COLUMNS | changed
    if path.suffix == ".npz":
        np.savez(path, **columns)  # type: ignore[arg-type]  # takes unpacked arrays for its own keyword
    elif path.suffix == ".csv":
        np.savetxt(path, np.stack(list(columns.values()), 1), "%g", ",", header=",".join(columns), comments="")
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.update(columns)
    return path


@pytest.mark.parametrize("name", ["log.npz", "log.hdf5", "log.csv"])
def test_data_check(tmp_path, name):
    run_without_torch("data", "check", write(tmp_path / name), "--json")


def test_data_check_of_rows_that_must_be_mended(tmp_path):
    truncated = np.array([1, 0, 0, 0, 0, 1])  # though row 1 goes on where row 0 led
    path = write(tmp_path / "log.npz", rewards=np.array([0, 1, 2, 3, np.nan, 5]), truncated=truncated)
    run_without_torch(
        "data", "check", path, "--action-range", "-1,1", "--allow", "nan,out_of_range,no_episode_end,crossing"
    )


def test_data_show(tmp_path):
    pytest.importorskip("matplotlib")
    run_without_torch("data", "show", write(tmp_path / "log.npz"), "--out", tmp_path / "log.png")


def test_compare_and_report(tmp_path, write_run):
    run = write_run(tmp_path / "run", 5, 10, algo="iql", top={"dataset": str(write(tmp_path / "log.npz"))})
    run_without_torch("compare", run)
    pytest.importorskip("bokeh")
    run_without_torch("report", run, "--out", tmp_path / "report.html")


WITHOUT_EXECUTORS = """
import sys
from typer.testing import CliRunner
from rl_training.cli import app
result = CliRunner().invoke(app, sys.argv[1:])
assert result.exit_code == 0, result.output
assert not {"ray", "submitit", "optuna"} & set(sys.modules)
assert "--help" not in sys.argv or not {"torch", "pydantic", "numpy", "rich"} & set(sys.modules)
"""
TRAIN = ["bc", "Pendulum-v1", "--dataset", "{kind: random, rows: 64}", "--steps", "2", "--set", "hidden_sizes=[8]",
         "--set", "eval_interval=0", "--set", "log=[]", "--quiet"]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["train", "--help"], ["bench", "--help"], ["train", *TRAIN, "--seeds", "0-1", "--output", "run"]],
)
def test_no_executor_is_imported_unless_it_is_used(tmp_path, arguments):
    command = [sys.executable, "-c", WITHOUT_EXECUTORS, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
