"""Several columns of choices on the command line: from logs to a policy that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

COLUMNS = ["--columns", "obs=temperature,load", "--columns", "actions=dose,fan"]
SMALL = ["--set", "hidden_sizes=[32]", "--set", "batch_size=64", "--set", "learning_rate=0.01"]
ROWS = [[2.0, -1.0], [-2.0, 1.0], [0.0, 1.0]]


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """The dose follows the temperature and the fan the load; 60 episodes of 10 rows."""
    rng, count = np.random.default_rng(0), 600
    temperature, load = rng.normal(size=(2, count)).round(3)
    dose = np.select([temperature > 0.5, temperature > -0.5], ["high", "mid"], "low")
    table = {"episode": np.arange(count) // 10, "temperature": temperature, "load": load, "dose": dose,
             "fan": 1 + (load > 0), "reward": rng.normal(size=count)}  # fmt: skip
    path: Path = tmp_path_factory.mktemp("data") / "log.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(cli, log, tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("runs") / "bc"
    trained = cli("train", "bc", "--dataset", log, *COLUMNS, "--steps", 300, *SMALL, "--output", path)
    assert trained.exit_code == 0, trained.stderr
    assert "the actions are choices in 2 columns: dose, fan\n" in trained.stderr + trained.stdout
    return path


def test_predict_names_the_choices_by_column(cli, run):
    found = json.loads(cli("predict", run, "--obs", json.dumps(ROWS)).stdout)
    assert found == [{"dose": "high", "fan": 1}, {"dose": "low", "fan": 2}, {"dose": "mid", "fan": 2}]
    one = cli("predict", run, "--obs", '{"temperature": 2, "load": -1}', "--stochastic")
    assert json.loads(one.stdout)["fan"] in (1, 2)


def test_predict_prints_the_probabilities_of_each_choice(cli, run):
    found: dict[str, Any] = json.loads(cli("predict", run, "--obs", str(ROWS), "--probabilities", "--json").stdout)
    assert found["action_names"] == {"dose": ["high", "low", "mid"], "fan": None}
    for row, best in zip(found["probabilities"], ([0, 0], [1, 1], [2, 1]), strict=True):
        assert [len(choice) for choice in row] == [3, 2]
        assert [sum(choice) for choice in row] == pytest.approx([1, 1])
        assert [int(np.argmax(choice)) for choice in row] == best
    named = json.loads(cli("predict", run, "--obs", str(ROWS[0]), "--probabilities").stdout)["probabilities"]
    assert named["dose"] == pytest.approx(dict(zip(("high", "low", "mid"), found["probabilities"][0][0], strict=True)))
    assert named["fan"] == pytest.approx(found["probabilities"][0][1])


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt2"])
def test_an_exported_policy_has_the_columns_and_names(cli, run, log, tmp_path, name):
    exported = cli("export", run, "--out", tmp_path / name, "--data", log, "--json")
    assert exported.exit_code == 0, exported.stderr
    described = json.loads((tmp_path / "policy.json").read_text(encoding="utf-8"))
    parity = described["files"][name]["parity"]
    assert (parity["holds"], parity["equal_actions"]) == (True, 540)
    actions, logits = described["outputs"]
    assert (actions["columns"], actions["categories"]) == (["dose", "fan"], {"dose": ["high", "low", "mid"]})
    assert (actions["low"], actions["high"]) == ([0, 1], 2)
    assert logits["shape"] == ["batch", 5]


def test_the_return_is_estimated_from_data(cli, run, log):
    found = cli("evaluate", run, "--ope", log, "--updates", 200, "--json")
    assert found.exit_code == 0, found.stderr
    assert np.isfinite(json.loads(found.stdout)["estimate"])


def test_a_run_from_a_table_resumes_exactly(run, tmp_path):
    config = RunDirectory(run).config()
    assert config is not None
    halved = config.model_copy(update={"output_dir": str(tmp_path / "halved")})
    run_training(halved, callbacks=[StopAtStep(130)], warn=lambda text: None)
    resume_run(tmp_path / "halved", warn=lambda text: None)
    assert compare_runs(run, tmp_path / "halved") == []


def test_every_seed_of_a_population_learns_the_choices(cli, run, log, tmp_path):
    command = ["train", "bc", "--dataset", log, *COLUMNS, "--steps", 300, *SMALL, "--seeds", "0,1"]
    trained = cli(*command, "--output", tmp_path / "seeds")
    assert trained.exit_code == 0, trained.stderr
    outputs = [cli("predict", each, "--obs", str(ROWS)).stdout for each in (run, *(tmp_path / "seeds").glob("seed_*"))]
    assert len(outputs) == 3
    assert len({*outputs}) == 1


def test_a_split_keeps_names_and_starts(cli, run, log, tmp_path):
    split = cli("data", "split", log, *COLUMNS, "--out", tmp_path)
    assert split.exit_code == 0, split.stderr
    checked = json.loads(cli("data", "check", tmp_path / "test.parquet", "--json").stdout)
    assert checked["trainable"]
    assert (checked["columns"]["actions"]["low"], checked["columns"]["actions"]["high"]) == ([0, 1], [2, 2])
    again = ["train", "bc", "--dataset", tmp_path / "train.parquet", "--steps", 300, *SMALL]
    trained = cli(*again, "--output", tmp_path / "r")
    assert trained.exit_code == 0, trained.stderr
    first, second = (cli("predict", each, "--obs", str(ROWS)).stdout for each in (run, tmp_path / "r"))
    assert json.loads(first) == json.loads(second)


def test_the_plot_of_the_data_has_a_histogram_for_each_choice(cli, log, tmp_path):
    shown = cli("data", "show", log, *COLUMNS, "--out", tmp_path / "data.png")
    assert shown.exit_code == 0, shown.stderr
    assert (tmp_path / "data.png").stat().st_size > 10_000


def test_other_offline_algorithms_name_bc(cli, log, tmp_path):
    refused = cli("train", "cql", "--dataset", log, *COLUMNS, "--steps", 2, "--output", tmp_path / "run")
    assert refused.exit_code == 2
    assert "cql needs a Box or Discrete action space, got MultiDiscrete; these accept it: bc;" in refused.stderr
