"""The `export` command."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from rl_training.experiment.agent import load_agent
from rl_training.experiment.export import exporting


def test_export_prints_what_it_measured(cli, finished, tmp_path):
    result = cli("export", finished["run_dir"], "--out", tmp_path / "policy.pt2", "--observations", "64")
    assert result.exit_code == 0, result.stderr
    assert "64 of 64 equal, on observations from CartPole-v1" in result.stdout
    assert "logits" in result.stdout
    assert (tmp_path / "policy.json").exists()


def test_export_writes_onnx_and_prints_json(cli, finished, tmp_path):
    pytest.importorskip("onnx")
    out = tmp_path / "policy.onnx"
    result = cli("export", finished["run_dir"], "--best", "--out", out, "--observations", "64", "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert (printed["file"], printed["algorithm"]) == (str(out), "ppo")
    assert printed["files"]["policy.onnx"]["parity"]["observations"] == 64


@pytest.fixture(params=[".onnx", ".pt2"])
def suffix(request) -> str:
    if request.param == ".onnx":
        pytest.importorskip("onnx")
    return str(request.param)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files may be text only")
def test_export_writes_into_a_folder_whose_name_is_no_text(finished, tmp_path, suffix):
    folder = tmp_path / os.fsdecode(b"Pr\xfcfung")
    folder.mkdir()
    exporting.export_agent(load_agent(finished["run_dir"]), folder / f"policy{suffix}", observations=8)
    assert sorted(path.name for path in folder.iterdir()) == ["policy.json", f"policy{suffix}"]


@pytest.mark.slow
def test_export_writes_into_a_folder_whose_name_is_no_text_in_the_locale(finished, tmp_path, suffix):
    folder = tmp_path / "Prüfung"
    folder.mkdir()
    command = [sys.executable, "-m", "rl_training", "export", finished["run_dir"], "--out", folder / f"policy{suffix}"]
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = subprocess.run([*command, "--observations", "8"], env={**os.environ, **locale}, capture_output=True)
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["policy.json", f"policy{suffix}"]


def test_export_exits_with_1_if_the_file_differs(cli, finished, tmp_path, monkeypatch):
    def wrong(inputs):
        rows = len(inputs["obs"])
        return {"actions": np.zeros(rows, np.int64), "logits": np.ones((rows, 2), np.float32)}

    monkeypatch.setattr(exporting, "open_policy", lambda path: wrong)
    result = cli("export", finished["run_dir"], "--out", tmp_path / "policy.pt2", "--observations", "64")
    assert (result.exit_code, [*tmp_path.iterdir()]) == (1, [])
    assert "the exported policy differs from the agent" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "policy.h5"), "the file of a policy must end in .onnx or .pt2, got policy.h5"),
        (("--out", "policy.pt2", "--tolerance", "0"), "observations and tolerance must be positive numbers"),
        (("--out", "policy.pt2", "--tolerance", "inf"), "observations and tolerance must be positive numbers"),
    ],
)
def test_export_refuses_wrong_options(cli, finished, options, message):
    result = cli("export", finished["run_dir"], *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_offline_run_is_exported_with_its_own_data(cli, pendulum, tmp_path):
    result = cli("export", pendulum, "--out", tmp_path / "policy.pt2", "--observations", "50")
    assert result.exit_code == 0, result.stderr
    assert "observations from Pendulum-v1" in result.stdout


def test_data_with_other_column_names_are_read_with_the_option_that_the_error_names(cli, pendulum, tmp_path):
    rows = [f"{step},{step / 9},1,{step % 3 - 1}.5,1,{int(step == 9)},0" for step in range(10)]
    data = tmp_path / "log.csv"
    data.write_text("\n".join(["x,y,z,torque,reward,done,timeout", *rows]))
    export = ("export", pendulum, "--out", tmp_path / "policy.pt2", "--columns", "obs=x,y,z")
    refused = cli(*export, "--data", data)
    assert refused.exit_code == 2
    assert "name the columns with --columns, such as actions=torque" in refused.stderr
    done = cli(*export, "--data", data, "--columns", "actions=torque")
    assert done.exit_code == 0, done.stderr
    assert f"10 of 10 equal, on observations from {data}" in " ".join(done.stdout.split())
    assert cli(*export).stderr == "error: --columns needs --data DATASET\n"


def test_a_run_whose_data_are_gone_asks_for_other_data(cli, tmp_path):
    data = tmp_path / "random.npz"
    assert cli("data", "collect", "random", "--env", "Pendulum-v1", "--steps", "50", "--out", data).exit_code == 0
    options = ["--steps", "2", "--set", "hidden_sizes=[8]", "--output", tmp_path / "run"]
    assert cli("train", "bc", "--dataset", data, *options).exit_code == 0
    data.unlink()
    result = cli("export", tmp_path / "run", "--out", tmp_path / "policy.pt2")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: dataset file {data} not found; compare the policy on other observations with --data DATASET\n"
    )
