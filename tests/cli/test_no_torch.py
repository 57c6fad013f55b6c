"""What is only read and looked at costs no import of torch, which takes longer than the work itself."""

from __future__ import annotations

import json
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
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from rl_training.cli import app
for command in json.load(sys.stdin):
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, (command, result.output)
    assert "torch" not in sys.modules, command
"""


def run_without_torch(*commands: list[object]) -> None:
    words = json.dumps([[str(word) for word in command] for command in commands])
    ran = subprocess.run([sys.executable, "-c", COMMANDS], input=words, capture_output=True, text=True)
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


def test_data_check_and_show(tmp_path):
    pytest.importorskip("matplotlib")
    files = [write(tmp_path / name) for name in ("log.npz", "log.hdf5", "log.csv")]
    truncated = np.array([1, 0, 0, 0, 0, 1])  # though row 1 goes on where row 0 led
    mended = write(tmp_path / "mended.npz", rewards=np.array([0, 1, 2, 3, np.nan, 5]), truncated=truncated)
    allowed = ["--allow", "nan,out_of_range,no_episode_end,crossing"]
    run_without_torch(
        *(["data", "check", file, "--json"] for file in files),
        ["data", "check", mended, "--action-range", "-1,1", *allowed],
        ["data", "show", files[0], "--out", tmp_path / "log.png"],
    )


def test_compare_and_report(tmp_path, write_run):
    pytest.importorskip("bokeh")
    run = write_run(tmp_path / "run", 5, 10, algo="iql", top={"dataset": str(write(tmp_path / "log.npz"))})
    run_without_torch(["compare", run], ["report", run, "--out", tmp_path / "report.html"])
