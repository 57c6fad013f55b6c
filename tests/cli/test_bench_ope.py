"""`bench --score ope`: cells without an environment, scored by off-policy estimates from test data."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.data.writers import save_npz
from rl_training.experiment.bench.plan import parse_plan, plan_yaml, read_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.run_directory import RunDirectory
from rl_training.reporting.bench_cells import read_cells
from rl_training.runtime.recipes import roll_dataset

pytestmark = pytest.mark.usefixtures("forked_jobs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("ope")
    for name, seed in (("train", 0), ("test", 1)):
        save_npz(roll_dataset("Pendulum-v1", rows=400, seed=seed), path / f"{name}.npz")
    return path


@pytest.fixture(scope="module")
def command(folder) -> list[str]:
    return ["bench", "--algos", "bc,iql", "--datasets", str(folder / "train.npz"), "--score", "ope", "--test",
            str(folder / "test.npz"), "--updates", "2", "--seeds", "0-1", "--steps", "4", "--set", "hidden_sizes=[8]",
            "--jobs", "2", "--output", str(folder / "bench"), "--json"]  # fmt: skip


@pytest.fixture(scope="module")
def ended(forking, cli, command) -> dict[str, Any]:
    with forking():
        result = cli(*command)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_cells_are_scored_without_an_environment(ended, folder):
    bc, iql = ended["cells"]
    assert (ended["status"], bc["cell"], iql["cell"]) == ("done", "bc-train", "iql-train")
    assert (bc["env"], bc["score"], bc["test"]) == (None, "ope", str(folder / "test.npz"))
    assert bc["scores"] == [each["estimate"] for each in bc["estimates"]]
    assert all(each["interval"][0] < each["estimate"] < each["interval"][1] for each in bc["estimates"])
    assert {"fqe", "wis", "dr"} <= bc["estimates"][0]["estimates"].keys()


def test_a_stored_score_is_an_estimate_and_no_played_return(cli, ended, folder):
    stored = json.loads((folder / "bench" / "bc-train" / "result.json").read_text())
    score = stored["runs"][1]["score"]
    assert (stored["score"], "return_mean" in score, score["trained_on_this_data"]) == ("ope", False, False)
    assert stored["commands"][1] == f"rl-training evaluate RUNS --ope {folder}/test.npz --updates 2"
    cell = folder / "bench" / "bc-train"
    again = cli(*(str(cell) if word == "RUNS" else word for word in stored["commands"][1].split()[1:]), "--json")
    estimates = {run["run_dir"]: run["estimate"] for run in json.loads(again.stdout)["runs"]}
    assert estimates == {str(cell / f"seed_{run['seed']}"): run["score"]["estimate"] for run in stored["runs"]}


def test_a_bench_that_is_done_is_read_again(cli, command, ended, folder):
    result = folder / "bench" / "bc-train" / "result.json"
    before = result.stat().st_mtime_ns
    assert json.loads(cli(*command).stdout) == ended
    assert json.loads(cli("bench", "--output", folder / "bench", "--cell", "bc-train", "--json").stdout)["cells"] == [
        ended["cells"][0]
    ]
    assert result.stat().st_mtime_ns == before


def test_a_cell_whose_score_is_missing_is_scored_again_alike(cli, ended, folder):
    result = folder / "bench" / "bc-train" / "result.json"
    result.unlink()
    again = json.loads(cli("bench", "--output", folder / "bench", "--cell", "bc-train", "--json").stdout)
    assert again["cells"] == [ended["cells"][0]]


def changed(command: list[str], **options: object) -> list[str]:
    """The command with other values of these options, or without those that are None."""
    words = list(command)
    for name, value in options.items():
        place = words.index(f"--{name}")
        words[place : place + 2] = [] if value is None else [f"--{name}", str(value)]
    return words


@pytest.fixture
def copied(ended, folder, tmp_path) -> Path:
    return shutil.copytree(folder / "bench", tmp_path / "bench")


def test_other_test_data_make_new_scores_of_the_trained_runs(cli, command, copied, ended, tmp_path):
    save_npz(roll_dataset("Pendulum-v1", rows=400, seed=2), other := tmp_path / "other.npz")
    weights = {file: file.stat().st_mtime_ns for file in copied.rglob("*.safetensors")}
    again = cli(*changed(command, test=other, updates=3, output=copied))
    assert again.exit_code == 0, again.stderr
    assert "scores are made again (test: " in again.stderr
    assert again.stderr.count("trained runs are kept") == 1
    for cell, before in zip(json.loads(again.stdout)["cells"], ended["cells"], strict=True):
        stored = json.loads((copied / cell["cell"] / "result.json").read_text())
        assert (cell["test"], stored["test"], stored["runs"][0]["score"]["updates"]) == (str(other), str(other), 3)
        assert cell["scores"] != before["scores"]
    assert {file: file.stat().st_mtime_ns for file in copied.rglob("*.safetensors")} == weights


def test_a_cell_is_not_done_until_it_is_scored_with_the_new_options(copied):
    plan = read_plan(copied)
    newer = plan.model_copy(update={"updates": 3})
    (copied / "bench.yaml").write_text(plan_yaml(newer))  # as if the command had been killed after writing the plan
    assert [cell.state for cell in Bench(newer, copied).cells] == ["waiting", "waiting"]
    assert [cell.result for cell in read_cells(copied)] == [None, None]
    assert [cell.state for cell in Bench(plan, copied).cells] == ["done", "done"]


def test_scores_of_earlier_versions_are_read_and_kept(cli, copied):
    for cell in (RunDirectory(folder) for folder in copied.glob("*-train")):
        stored = cell.read("result.json")
        assert stored is not None
        stored["commands"][-1] += " --seed 12345"  # the seed of estimates until now
        cell.write("result.json", stored)
    assert [cell.state for cell in Bench(read_plan(copied), copied).cells] == ["done", "done"]
    assert cli("compare", copied).exit_code == 0


def test_scores_are_not_made_again_if_the_runs_are_deleted(cli, command, copied):
    for run in copied.glob("*/seed_*"):
        shutil.rmtree(run)
    result = cli(*changed(command, updates=3, output=copied))
    assert (result.exit_code, "because its runs are deleted; choose another --output" in result.stderr) == (2, True)
    assert (copied / "bc-train" / "result.json").exists()


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_test_data_that_do_not_fit_are_refused_before_any_training(cli, command, tmp_path, kind):
    file = tmp_path / f"data.{kind}"
    if kind == "npz":
        save_npz(roll_dataset("CartPole-v1", rows=50, seed=0), file)
    else:
        file.write_text("remarks\n1\n")
    result = cli(*changed(command, test=file, output=tmp_path / "bench"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: the test data do not fit bc-train: {file}")
    assert ("obs have shape (4,)" if kind == "npz" else "name the columns with --columns") in result.stderr
    assert not list((tmp_path / "bench").glob("*-train"))


def test_columns_can_be_named_and_bc_joins_a_bench_that_discounts_by_time(cli, folder, tmp_path):
    for name in ("train", "test"):
        with np.load(folder / f"{name}.npz") as columns:
            renamed = {**columns, "state": columns["obs"], "hour": np.arange(400) * 2.0}
        np.savez(tmp_path / name, **{key: column for key, column in renamed.items() if key not in ("obs", "spec")})
    options = ["--set", "hidden_sizes=[8]", "--set", "discount_time=hour", "--set", "time_unit=2"]
    result = cli("bench", "--algos", "bc,iql", "--datasets", tmp_path / "train.npz", "--columns", "obs=state",
                 "--action-range", "-2,2", "--score", "ope", "--test", tmp_path / "test.npz", "--updates", "2",
                 "--seeds", "0", "--steps", "4", *options, "--jobs", "2", "--output", tmp_path / "bench",
                 "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    plan = read_plan(tmp_path / "bench")
    assert (plan.set["dataset_columns"], plan.set["action_range"]) == ({"obs": "state"}, [-2, 2])
    assert json.loads(result.stdout)["status"] == "done"


class Elsewhere(LocalExecutor):
    """Runs every work in a process of its own, as on another machine."""

    remote = True


def test_a_remote_executor_trains_and_scores_a_cell(folder, tmp_path):
    plan = {"algos": ["bc"], "datasets": [str(folder / "train.npz")], "score": "ope", "test": str(folder / "test.npz"),
            "updates": 2, "seeds": [0], "steps": 4, "set": {"hidden_sizes": [8]}}  # fmt: skip
    bench = Bench(parse_plan(plan), tmp_path)
    bench.run(executor=Elsewhere(1))
    (cell,) = bench.cells
    assert (bench.status, cell.error) == ("done", None)
    assert "estimate" in (cell.result or {})["runs"][0]["score"]


def test_the_printed_table_is_marked_as_estimates(cli, command, ended):
    printed = cli(*command[:-1]).stdout
    assert "estimate [95%] of each seed" in printed
    assert "caution     no episodes were played: the estimate does not cover" in printed


def test_compare_shows_estimates_with_intervals_and_warnings(cli, ended, folder, tmp_path):
    result = cli("compare", folder / "bench", "--csv", tmp_path / "runs.csv")
    assert result.exit_code == 0, result.stderr
    assert f"note: scores are off-policy estimates from {folder}/test.npz, not returns of played" in result.stderr
    assert f"{folder.name}/train" in result.stdout
    assert "estimate [95%]" in result.stdout
    assert "the data cannot separate them: intervals overlap" in result.stdout
    assert "warning: bc, iql: the interval rests on only 8 episodes" in result.stdout
    assert "probability" not in result.stdout
    assert f"is the return of the policy that recorded {folder}/test.npz, with the same discount" in result.stdout
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [(row["algo"], row["score_kind"], row["env"]) for row in rows[:2]] == [("bc", "ope", ""), ("bc", "ope", "")]
    assert float(rows[0]["low"]) < float(rows[0]["score"]) < float(rows[0]["high"])


def test_report_marks_estimates(cli, ended, folder, tmp_path):
    pytest.importorskip("jinja2")
    result = cli("report", folder / "bench", "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "page.html").read_text()
    assert f"off-policy estimates from {folder}/test.npz, not returns of played episodes" in page
    assert 'id="estimates"' in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--score", "ope"], "score ope needs test data; give --test DATASET, episodes that no cell trains on"),
        (["--score", "ope", "--test", "TEST", "--episodes", "3"], "--score ope runs no episodes: remove --episodes"),
        (["--test", "TEST"], "test is for off-policy estimates; add --score ope, or leave it out"),
        (["--updates", "3"], "updates is for off-policy estimates; add --score ope, or leave it out"),
        (["--score", "ope", "--test", "absent.npz"], "test data absent.npz not found; give --test a file that exists"),
        (["--score", "ope", "--test", "TEST", "--gamma", "1"], "gamma: must be less than 1, got 1.0"),
        ([], "algos need environments; give --envs, or envs in a plan file (configs name their own)"),
    ],
)
def test_a_wrong_bench_is_one_sentence(cli, folder, tmp_path, arguments, message):
    given = [str(folder / "test.npz") if each == "TEST" else each for each in arguments]
    result = cli("bench", "--algos", "bc", "--datasets", folder / "train.npz", *given, "--output", tmp_path / "bench")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_algorithms_without_environment_and_data_are_refused(cli, folder, tmp_path):
    result = cli("bench", "--algos", "bc", "--score", "ope", "--test", folder / "test.npz", "--output", tmp_path / "b")
    assert result.exit_code == 2
    assert "bc: a dataset is needed to train without an environment; name it in datasets" in result.stderr


def test_an_unknown_score_is_a_usage_error(cli):
    assert cli("bench", "--algos", "bc", "--score", "guess").exit_code == 2
