"""`evaluate RUN RUN --ope DATASET`: one table, best first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.cli.ranking import listed
from rl_training.data import load_transition_dataset, mix_transition_datasets
from rl_training.data.writers import save_npz
from rl_training.experiment.ope.fitting import UPDATES
from rl_training.runtime.recipes import roll_dataset

SMALL = ["--set", "hidden_sizes=[8]", "--steps", "4", "--quiet"]
KEYS = {"run_dir", "estimate", "interval", "warnings", "estimates", "checkpoint", "trained_on_this_data", "overlaps"}


@pytest.fixture(scope="module")
def folder(cli, tmp_path_factory) -> Path:
    """Two files of random steps of Pendulum, an IQL run and a folder with two seeds of BC."""
    path = tmp_path_factory.mktemp("ranking")
    for name, seed in (("train", 0), ("test", 1)):
        save_npz(roll_dataset("Pendulum-v1", rows=400, seed=seed), path / f"{name}.npz")
    for algo, seeds in (("iql", []), ("bc", ["--seeds", "0-1"])):
        trained = cli("train", algo, "--dataset", path / "train.npz", *SMALL, *seeds, "--output", path / algo)
        assert trained.exit_code == 0, trained.stderr
    return path


@pytest.fixture(scope="module")
def ranked(cli, folder) -> dict[str, Any]:
    result = cli("evaluate", folder / "iql", folder / "bc", "--ope", folder / "test.npz", "--updates", "5", "--json")
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_runs_and_every_seed_of_a_folder_are_ranked_best_first(folder, ranked):
    runs = ranked["runs"]
    assert {run["run_dir"] for run in runs} == {str(folder / each) for each in ("iql", "bc/seed_0", "bc/seed_1")}
    estimates = [run["estimate"] for run in runs]
    assert estimates == sorted(estimates, reverse=True)
    assert all(run.keys() >= KEYS for run in runs)
    assert {"fqe", "wis", "dr"} <= runs[0]["estimates"].keys()
    assert all(run["interval"][0] < run["estimate"] < run["interval"][1] for run in runs)
    assert (ranked["dataset"], ranked["gamma"], ranked["episodes"]) == (str(folder / "test.npz"), 0.99, 8)
    assert ranked["behaviour_interval"][0] < ranked["behaviour_return"] < ranked["behaviour_interval"][1]
    assert not any(run["trained_on_this_data"] for run in runs)


def test_runs_whose_intervals_overlap_name_each_other(ranked):
    runs = ranked["runs"]
    for run in runs:
        others = [other["run_dir"] for other in runs if other is not run and other["interval"][1] >= run["interval"][0]
                  and other["interval"][0] <= run["interval"][1]]  # fmt: skip
        assert run["overlaps"] == others


def test_the_table_marks_runs_that_the_data_cannot_separate(cli, folder):
    result = cli("evaluate", folder / "bc", "--ope", folder / "test.npz", "--updates", "2")
    assert result.exit_code == 0, result.stderr
    head, _, first, second, verdict, *rest = result.stdout.splitlines()
    assert head.split()[:3] == ["run", "estimate", "[95%]"]
    assert (first.split()[0], second.split()[0]) == ("1", "2")
    assert verdict == "the data cannot separate run 1 from run 2: their 95% intervals overlap"
    assert rest[0].startswith("behaviour   ")
    assert "warning     all runs: the interval rests on only 8 episodes" in result.stdout
    assert rest[-1].startswith("caution     the estimate does not cover states")


def test_data_that_a_run_was_trained_on_are_named(cli, folder, tmp_path):
    copied = tmp_path / "copy.npz"
    copied.write_bytes((folder / "train.npz").read_bytes())  # another name, the same contents
    for data in (folder / "train.npz", copied):
        result = cli("evaluate", folder / "bc", "--ope", data, "--updates", "1", "--json")
        runs = json.loads(result.stdout)["runs"]
        assert all(run["trained_on_this_data"] for run in runs)
        assert "trained on these data" in runs[0]["warnings"][0]
    printed = cli("evaluate", folder / "bc", "--ope", folder / "train.npz", "--updates", "1").stdout
    assert printed.splitlines()[0].split()[:3] == ["run", "data", "estimate"]
    assert printed.count("of its training") == 2
    alone = cli("evaluate", folder / "iql", "--ope", folder / "train.npz", "--updates", "1")
    assert "warning     the run was trained on these data, so the estimate may be too high" in alone.stdout


def test_a_run_alone_and_in_a_ranking_has_the_same_estimate(cli, folder, ranked):
    alone = cli("evaluate", folder / "iql", "--ope", folder / "test.npz", "--updates", "5", "--json")
    found = json.loads(alone.stdout)
    together = next(run for run in ranked["runs"] if run["run_dir"] == str(folder / "iql"))
    assert found["estimate"] == pytest.approx(together["estimate"], rel=1e-5)
    assert found["interval"] == pytest.approx(together["interval"], rel=1e-5)
    assert (found["members"], found["discount"]) == (together["members"], ranked["discount"])


def test_episodes_that_a_run_was_trained_on_are_counted(cli, folder, tmp_path):
    seen, other = (load_transition_dataset(folder / f"{name}.npz") for name in ("train", "test"))
    save_npz(mix_transition_datasets([seen, other]), tmp_path / "mixed.npz")
    save_npz(seen.subsample(episodes=3), tmp_path / "part.npz")
    asked = ["evaluate", folder / "iql", "--ope", tmp_path / "mixed.npz", "--updates", "1"]
    warning = "8 of 16 episodes (50%) are also in the run's training data, so the estimate may be too high"
    assert warning in cli(*asked).stdout
    runs = json.loads(cli(*asked[:2], folder / "bc", *asked[2:], "--json").stdout)["runs"]
    assert {(run["shared_episodes"], run["trained_on_this_data"]) for run in runs} == {(8, False)}
    assert all(run["warnings"][0].startswith(warning) for run in runs)
    part = cli("evaluate", folder / "bc", "--ope", tmp_path / "part.npz", "--updates", "1", "--json")
    assert all(run["trained_on_this_data"] for run in json.loads(part.stdout)["runs"])


def test_episodes_of_one_of_several_training_files_are_found(cli, folder, tmp_path):
    run = tmp_path / "run"
    assert cli("train", "bc", "--dataset", folder / "t*.npz", *SMALL, "--output", run).exit_code == 0
    found = json.loads(cli("evaluate", run, "--ope", folder / "test.npz", "--updates", "1", "--json").stdout)
    assert (found["shared_episodes"], "the run was trained on these data" in found["warnings"][0]) == (8, True)


def test_discounts_of_the_data_are_named_and_exclude_gamma(cli, folder, tmp_path):
    with np.load(folder / "test.npz") as stored:
        np.savez(tmp_path / "uneven.npz", discounts=np.full(400, 0.5), **stored)
    asked = ["--ope", tmp_path / "uneven.npz", "--columns", "discounts=discounts", "--updates", "1"]
    for runs in ([folder / "iql"], [folder / "iql", folder / "bc"]):
        assert "discounted by the column discounts of the data" in cli("evaluate", *runs, *asked).stdout
        refused = cli("evaluate", *runs, *asked, "--gamma", "0.9")
        assert refused.exit_code == 2
        assert "gamma has no effect: the data has a discount for each row (column discounts)" in refused.stderr


def test_a_discount_by_time_of_some_runs_is_noted(cli, folder, tmp_path):
    timed: dict[str, Any] = {}
    for name in ("train", "test"):
        with np.load(folder / f"{name}.npz") as stored:
            timed[name] = tmp_path / f"{name}.npz"
            np.savez(timed[name], hour=2.0 * np.arange(400), **stored)
    options = ["--set", "discount_time=hour", "--set", "time_unit=4", *SMALL, "--output", tmp_path / "timed"]
    trained = cli("train", "iql", "--dataset", timed["train"], *options)
    assert trained.exit_code == 0, trained.stderr
    assert f"next        rl-training evaluate {tmp_path}/timed --ope {timed['test']}" in trained.stdout
    asked = cli("evaluate", folder / "iql", tmp_path / "timed", "--ope", timed["test"], "--updates", "1", "--json")
    ranked = json.loads(asked.stdout)
    assert ranked["discount"] == "0.99 per 4 of 'hour'"
    assert ranked["notes"] == [
        "1 of 2 runs were trained without discount_time, and all are discounted by 0.99 per 4 of 'hour'"
    ]


@pytest.mark.usefixtures("short_cloning")
def test_sampled_actions_have_importance_weights(cli, folder):
    asked = ["evaluate", folder / "bc", "--ope", folder / "test.npz", "--updates", "1"]
    without = cli(*asked)
    assert "note        all runs: no wis or dr: a deterministic policy with Box actions has no" in without.stdout
    ranked = json.loads(cli(*asked, "--action-samples", "2", "--json").stdout)
    assert all("deterministic" not in str(run["estimates"]["wis"]["reason"]) for run in ranked["runs"])


def test_the_defaults_named_in_the_help_are_those_of_the_estimates(cli):
    evaluate, bench = (" ".join(cli(command, "--help").stdout.split()) for command in ("evaluate", "bench"))
    assert f"Updates of the estimate (default {UPDATES:,})." in evaluate
    assert f"Updates of each estimate. [default: ({UPDATES:,})]" in bench


def test_a_discount_of_training_that_differs_is_noted(cli, folder):
    result = cli("evaluate", folder / "bc", "--ope", folder / "test.npz", "--updates", "1", "--gamma", "0.9", "--json")
    ranked = json.loads(result.stdout)
    assert ranked["gamma"] == 0.9
    assert ranked["notes"] == ["the runs were trained with the discount 0.99, and all are estimated with 0.9"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["IQL", "BC"], "give one RUN to play episodes, or --ope DATASET to rank several runs from data"),
        (["IQL", "IQL", "--ope", "TEST"], "is given twice; name each run once"),
        (["IQL", "ABSENT", "--ope", "TEST"], "no run or checkpoint at"),
        (["IQL", "BC", "--ope", "absent.npz"], "absent.npz not found"),
        (["IQL", "BC", "--ope", "TEST", "--episodes", "3"], "--ope runs no episodes: remove --episodes"),
        (["IQL", "BC", "--ope", "TEST", "--gamma", "1"], "gamma: must be less than 1, got 1.0"),
        (["IQL", "CARTPOLE", "--ope", "TEST"], "the runs cannot be ranked together: obs_shape is (3,) in"),
    ],
)
def test_a_wrong_ranking_is_one_sentence(cli, folder, finished, arguments, message):
    places = {"IQL": folder / "iql", "BC": folder / "bc", "TEST": folder / "test.npz", "ABSENT": folder / "absent",
              "CARTPOLE": finished["run_dir"]}  # fmt: skip
    result = cli("evaluate", *(places.get(each, each) for each in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_runs_that_read_different_columns_need_them_named(cli, folder, tmp_path):
    with np.load(folder / "train.npz") as stored:
        renamed = {"x" if name == "obs" else name: stored[name] for name in stored.files}
    np.savez(tmp_path / "own.npz", **renamed)
    own = cli(
        "train", "bc", "--dataset", tmp_path / "own.npz", "--columns", "obs=x", *SMALL, "--output", tmp_path / "own"
    )
    assert own.exit_code == 0, own.stderr
    both = ["evaluate", folder / "iql", tmp_path / "own", "--ope", folder / "test.npz", "--updates", "1"]
    refused = cli(*both)
    assert (refused.exit_code, "read their data with different --columns; give --columns" in refused.stderr) == (
        2,
        True,
    )
    assert cli(*both, "--columns", "obs=obs").exit_code == 0


@pytest.mark.parametrize(
    ("numbers", "text"), [([2], "run 2"), ([2, 3], "runs 2 and 3"), ([2, 3, 5], "runs 2, 3 and 5")]
)
def test_numbers_of_runs_are_listed(numbers, text):
    assert listed(numbers) == text
