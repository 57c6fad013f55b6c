"""`compare` and `runs ls`: runs are found below any folder and grouped by the options in which they differ."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rl_training.messages import seed_ranges
from rl_training.reporting.comparison import compare, learning_curves
from rl_training.reporting.comparison_plots import profile, save_improvements, save_profiles
from rl_training.reporting.stored_runs import read_run, run_directories


@pytest.fixture
def runs(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path / "runs" / "fast" / f"seed_{seed}", 5, 10 + seed, seed=seed, learning_rate=0.01)
        write_run(tmp_path / "runs" / "slow" / f"seed_{seed}", 5, 1 + seed, seed=seed)
        write_run(tmp_path / "runs" / "td3" / f"seed_{seed}", 5, 7, seed=seed, algo="td3", policy_delay=2)
    return tmp_path / "runs"


def test_the_score_of_a_run_is_its_last_evaluation_not_its_best(tmp_path, write_run):
    write_run(tmp_path / "run", 50, 3)
    (task,) = compare(tmp_path / "run").tasks
    assert task.entries[0].scores == [3]


def test_runs_are_grouped_by_the_options_in_which_they_differ(runs):
    found = compare(runs)
    assert [(group.label, group.seeds) for group in found.groups] == [
        ("sac learning_rate=0.01", [0, 1, 2]), ("sac learning_rate=0.001", [0, 1, 2]), ("td3", [0, 1, 2]),
    ]  # fmt: skip
    (task,) = found.tasks
    assert [entry.scores for entry in task.entries] == [[10, 11, 12], [1, 2, 3], [7, 7, 7]]
    assert task.pairs[0].probability == 1.0
    assert learning_curves(found)["X-v1"]["td3"].steps == [50, 100]
    assert found.to_json()["groups"][0]["options"] == {"learning_rate": 0.01}


def test_a_key_that_does_not_change_what_is_learned_separates_nothing(tmp_path, write_run):
    write_run(tmp_path / "a", 1, seed=0, top={"device": "cuda", "log_interval": 5})
    write_run(tmp_path / "b", 2, seed=1)
    assert [group.label for group in compare(tmp_path).groups] == ["sac"]


def test_by_separates_runs_by_the_named_keys_alone_and_names_the_others(tmp_path, write_run):
    for seed, (rate, size) in enumerate([(0.01, 64), (0.01, 128), (0.1, 64), (0.1, 128)]):
        write_run(tmp_path / str(seed), seed, seed=seed, learning_rate=rate, batch_size=size)
    for key in ("batch_size", "algo_kwargs.batch_size"):
        found = compare(tmp_path, by=[key])
        assert [(group.label, group.seeds) for group in found.groups] == [
            ("sac batch_size=64", [0, 2]), ("sac batch_size=128", [1, 3]),
        ]  # fmt: skip
        assert found.notes == ["sac on X-v1 pools runs that differ in learning_rate"]
    with pytest.raises(ValueError, match=r"--by batchsize: no run has this key; did you mean batch_size\?"):
        compare(tmp_path, by=["batchsize"])


def test_config_keys_of_the_run_separate_too(tmp_path, write_run):
    write_run(tmp_path / "a", 1, top={"env_kwargs": {"gravity": 9.8}})
    write_run(tmp_path / "b", 2, top={"env_kwargs": {"gravity": 1.6}})
    assert [group.label for group in compare(tmp_path).groups] == ["sac env_kwargs.gravity=9.8",
                                                                  "sac env_kwargs.gravity=1.6"]  # fmt: skip


def test_the_same_seed_twice_is_refused(tmp_path, write_run):
    write_run(tmp_path / "a", 1)
    write_run(tmp_path / "b", 2)
    advice = "leave one out: give only the folders that you want"
    with pytest.raises(ValueError, match=rf"seed 0 of sac on X-v1 occurs twice, in .*a and .*b; {advice}$"):
        compare(tmp_path)
    write_run(tmp_path / "c", 2, batch_size=32)
    with pytest.raises(ValueError, match=r"in .*/a and .*/c; .* or separate them with --by batch_size$"):
        compare(tmp_path / "a", tmp_path / "c", by=["learning_rate"])


def test_a_run_named_twice_counts_once(runs):
    assert len(compare(runs, runs / "td3").groups[-1].seeds) == 3


def test_runs_without_a_score_are_named_with_the_reason(tmp_path, write_run):
    write_run(tmp_path / "a", 1)
    write_run(tmp_path / "b", 2, seed=1, status="stopped")
    write_run(tmp_path / "c", 2, seed=2, status=None)
    write_run(tmp_path / "d", seed=3)
    found = compare(tmp_path)
    assert found.left_out == [
        f"{tmp_path}/b (stopped at step 100 of 100)", f"{tmp_path}/c (incomplete at step 100 of 100)",
        f"{tmp_path}/d (it has no evaluations)",
    ]  # fmt: skip
    with pytest.raises(
        ValueError, match=r"no run of .*d has finished with a score: .*d \(it has no evaluations\); a finished run has"
    ):
        compare(tmp_path / "d")


def test_a_bench_and_runs_stand_side_by_side_with_a_warning(tmp_path, write_run):
    cell = tmp_path / "bench" / "sac-X-v1"
    cell.mkdir(parents=True)
    (tmp_path / "bench" / "bench.yaml").write_text("algos: [sac]\nenvs: [X-v1]\n")
    run = {"seed": 0, "score": {"return_mean": 4.0}, "curve": []}
    (cell / "result.json").write_text(json.dumps({"algo": "sac", "env": "X-v1", "dataset": None, "runs": [run]}))
    write_run(tmp_path / "mine" / "run", 2)
    found = compare(tmp_path / "bench", tmp_path / "mine")
    assert [group.label for group in found.groups] == [f"sac in {cell}", f"sac in {tmp_path}/mine"]
    assert found.notes == ["scores are measured differently: evaluation of the last checkpoint by `bench` and last "
                           "evaluation in training"]  # fmt: skip


def write_cell(bench: Path, write_run, *scores: float, plan: str = "", top=None, **options) -> Path:
    """A bench of sac on X-v1; without options its run directories are absent."""
    folder = bench / "sac-X-v1"
    folder.mkdir(parents=True)
    (bench / "bench.yaml").write_text(f"algos: [sac]\nenvs: [X-v1]\n{plan}")
    facts = [{"seed": seed, "score": {"return_mean": score}, "curve": []} for seed, score in enumerate(scores)]
    result = {"cell": "sac-X-v1", "algo": "sac", "env": "X-v1", "dataset": None, "runs": facts}
    (folder / "result.json").write_text(json.dumps(result))
    for seed in range(len(scores)) if options else ():
        write_run(folder / f"seed_{seed}", 1, seed=seed, top=top, **options)
    return bench


def test_benches_are_labelled_by_the_options_in_which_they_differ(tmp_path, write_run):
    fast = write_cell(tmp_path / "fast", write_run, 4, 5, learning_rate=0.01, top={"total_timesteps": 300})
    slow = write_cell(tmp_path / "slow", write_run, 6, 7, learning_rate=0.1, top={"total_timesteps": 200})
    found = compare(fast, slow)
    assert [group.label for group in found.groups] == ["sac total_timesteps=300 learning_rate=0.01",
                                                      "sac total_timesteps=200 learning_rate=0.1"]  # fmt: skip
    assert found.to_json()["groups"][1]["options"] == {"total_timesteps": 200, "learning_rate": 0.1}
    assert [entry.algo for entry in found.tasks[0].entries] == [group.label for group in found.groups]
    assert found.notes == []
    chosen = compare(fast, slow, by=["learning_rate"])
    assert [group.label for group in chosen.groups] == ["sac learning_rate=0.01", "sac learning_rate=0.1"]


def test_benches_without_their_runs_are_labelled_by_their_plans(tmp_path, write_run):
    fast = write_cell(tmp_path / "fast", write_run, 4, plan="set: {learning_rate: 0.01}\nsteps: 300\n")
    plain = write_cell(tmp_path / "plain", write_run, 5, plan="steps: 300\n")
    whole = write_cell(tmp_path / "whole", write_run, 6, learning_rate=0.1, top={"total_timesteps": 300})
    assert [group.label for group in compare(fast, plain).groups] == ["sac learning_rate=0.01", "sac"]
    labels = [group.label for group in compare(fast, whole).groups]
    assert labels == ["sac learning_rate=0.01", "sac learning_rate=0.1"]
    assert compare(fast, by=["learning_rate"]).groups[0].label == "sac learning_rate=0.01"


def test_a_damaged_result_of_a_bench_is_named(cli, tmp_path):
    (tmp_path / "bench.yaml").write_text("algos: [ppo]\nenvs: [CartPole-v1]\n")
    file = tmp_path / "ppo-CartPole-v1" / "result.json"
    file.parent.mkdir()
    file.write_text("{")
    result = cli("compare", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file} is damaged (")
    assert result.stderr.endswith("; restore it from a copy, or remove it and repeat the bench\n")


def test_benches_with_equal_settings_are_named_by_their_folders_with_a_note(tmp_path, write_run):
    benches = [write_cell(tmp_path / name, write_run, 4, 5, learning_rate=0.01) for name in "ab"]
    found = compare(*benches)
    folders = [f"{bench}/sac-X-v1" for bench in benches]
    assert [group.label for group in found.groups] == [f"sac in {folder}" for folder in folders]
    assert found.notes == [f"sac on X-v1 has the same settings in {' and '.join(folders)}"]


def test_a_misspelt_key_is_refused_for_benches_too(tmp_path, write_run):
    bench = write_cell(tmp_path / "bench", write_run, 4, learning_rate=0.01)
    with pytest.raises(ValueError, match=r"--by learning_rat: no run has this key; did you mean learning_rate\?"):
        compare(bench, by=["learning_rat"])


def test_a_bench_has_its_own_scores_from_its_parent_and_from_the_folder_of_a_cell(tmp_path, write_run, monkeypatch):
    bench = write_cell(tmp_path / "runs" / "bench", write_run, 4, 5, learning_rate=0.01)
    cell = bench / "sac-X-v1"
    for paths in ([bench], [tmp_path / "runs"], [cell], [bench, cell], [cell, tmp_path]):
        found = compare(*paths)
        assert [entry.scores for entry in found.tasks[0].entries] == [[4, 5]]
        assert found.notes == []
    monkeypatch.chdir(cell)
    assert compare(".").tasks[0].entries[0].scores == [4, 5]
    found = compare(cell / "seed_0")
    assert found.tasks[0].entries[0].scores == [1]
    assert found.notes == [f"runs of the bench {bench} have their last evaluation in training as their score; give "
                           f"{bench} for the scores of the bench"]  # fmt: skip


def test_trials_of_a_study_count_only_from_their_folder(tmp_path, write_run):
    study = tmp_path / "runs" / "tune"
    for trial in range(2):
        write_run(study / "trials" / f"{trial:04}" / "seed_0", 9, learning_rate=0.1 + trial)
    (study / "tune.yaml").write_text("{}")
    with pytest.raises(ValueError, match=r"tune has only trials of a study, .* give .*tune/trials to compare them"):
        compare(study)
    write_cell(study / "final", write_run, 4, 5, learning_rate=0.1)
    for path in (study, tmp_path / "runs"):
        found = compare(path)
        assert [group.seeds for group in found.groups] == [[0, 1]]
        assert found.notes == [f"trials of the study {study} are left out (runs: 2); their scores are too high: the "
                               "best of many"]  # fmt: skip
    assert len(compare(study / "trials").groups) == 2
    assert compare(study / "trials" / "0001").groups[0].paths == [str(study / "trials" / "0001" / "seed_0")]


def test_algo_and_env_id_are_keys_that_always_separate(tmp_path, write_run):
    write_run(tmp_path / "a", 1, learning_rate=0.1)
    write_run(tmp_path / "b", 1, seed=1, learning_rate=0.2)
    write_run(tmp_path / "c", 1, algo="td3")
    for key in ("algo", "env_id"):
        found = compare(tmp_path, by=[key])
        assert [(group.label, group.seeds) for group in found.groups] == [("sac", [0, 1]), ("td3", [0])]
        assert found.notes == ["sac on X-v1 pools runs that differ in learning_rate"]


def test_no_note_about_pooling_where_no_group_pools(tmp_path, write_run):
    write_run(tmp_path / "a", 1, learning_rate=0.1, batch_size=32)
    write_run(tmp_path / "b", 1, learning_rate=0.2)
    assert compare(tmp_path, by=["learning_rate"]).notes == []


def test_patterns_are_expanded_and_paths_without_runs_refused(runs, tmp_path):
    assert [group.seeds for group in compare(str(runs / "*" / "seed_[01]")).groups] == [[0, 1]] * 3
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        compare(str(tmp_path / "absent*"))
    with pytest.raises(FileNotFoundError, match="absent does not exist"):
        compare(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no runs: it is neither a bench, a run directory nor a folder of runs"):
        compare(tmp_path / "empty")


def test_seeds_are_found_in_the_order_of_their_numbers(tmp_path, write_run):
    for seed in (10, 2, 0):
        write_run(tmp_path / f"seed_{seed}", 1, seed=seed)
    write_run(tmp_path / "seed_0" / "checkpoints" / "copy", 1, seed=7)
    assert [read_run(path).seed for path in run_directories(tmp_path)] == [0, 2, 10]
    assert seed_ranges([5, 0, 1, 2, 9, 10]) == "0-2, 5, 9, 10"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--plot", "there are no curves to draw: no run was evaluated while it trained (see eval_interval)"),
        ("--improvement", "there is nothing to compare: every task has a single algorithm or setting"),
    ],
)
def test_the_table_is_printed_if_a_picture_cannot_be_drawn(cli, tmp_path, write_run, option, reason):
    bench = write_cell(tmp_path / "bench", write_run, 4.0, 5.0)
    result = cli("compare", bench, option, tmp_path / "picture.png")
    assert (result.exit_code, result.stderr) == (2, f"error: {reason}\n")
    assert result.stdout == cli("compare", bench).stdout
    assert json.loads(cli("compare", bench, option, tmp_path / "picture.png", "--json").stdout)["groups"]


def test_a_performance_profile_is_the_fraction_of_runs_above_each_level():
    assert profile([1, 2, 3, 4], [0, 1, 2.5, 4]) == [1.0, 0.75, 0.5, 0.0]


def test_profiles_and_improvements_are_drawn(runs, tmp_path):
    pytest.importorskip("matplotlib")
    found = compare(runs)
    for save in (save_profiles, save_improvements):
        assert save(found, tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="every task has a single algorithm"):
        save_improvements(compare(runs / "td3"), tmp_path / "none.png")


def test_the_command_prints_what_it_grouped(cli, runs, tmp_path):
    result = cli("compare", runs / "fast", runs / "slow", "--csv", tmp_path / "runs.csv")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[:2] == ["X-v1  sac learning_rate=0.01: seeds 0-2",
                                              "X-v1  sac learning_rate=0.001: seeds 0-2"]  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [(row["seed"], float(row["score"])) for row in rows][:2] == [("0", 10.0), ("1", 11.0)]
    assert len({row["config_hash"] for row in rows}) == 2
    assert [task["env"] for task in json.loads(cli("compare", runs, "--json").stdout)["tasks"]] == ["X-v1"]


def test_runs_are_listed_with_status_step_and_returns(cli, runs, tmp_path, write_run):
    write_run(tmp_path / "runs" / "new", seed=4, status=None, env=None, top={"dataset": "logs.parquet"})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.yaml").write_text("[")
    (tmp_path / "runs" / "broken" / "run.json").write_text("{}")
    result = cli("runs", "ls", tmp_path / "runs", "--json")
    listed = {Path(run["run_dir"]).name + run["algo"]: run for run in json.loads(result.stdout)["runs"]}
    assert "left out: " in result.stderr
    assert len(listed) == 7  # three seeds of sac have the same names
    assert (listed["seed_1td3"]["last_return"], listed["seed_1td3"]["best_return"]) == (7, 7)
    assert {key: listed["newsac"][key] for key in ("status", "step", "last_return", "best_return", "dataset")} == {
        "status": "incomplete", "step": 1, "last_return": 1.5, "best_return": None, "dataset": "logs.parquet",
    }  # fmt: skip
    table = cli("runs", "ls", tmp_path / "runs").stdout
    assert "1.5 (training)" in table
    assert "100 of 100" in table
    write_run(tmp_path / "short", 1, top={"total_timesteps": 30})
    assert "100 (asked 30)" in cli("runs", "ls", tmp_path / "short").stdout
    assert cli("runs", "ls", tmp_path / "none").exit_code == 2
