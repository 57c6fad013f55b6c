"""Options that separate runs, and options that do not."""

from __future__ import annotations

import json

import pytest

from rl_training.reporting.comparison import compare
from rl_training.reporting.report.gathering import gather


@pytest.mark.parametrize(
    ("key", "value", "default"),
    [("callbacks", ["mine:Stop"], []), ("eval_stochastic", True, False), ("eval_max_steps", 9, 1_000_000)],
)
def test_options_that_change_scores_separate_runs_and_their_defaults_equal_a_missing_key(
    tmp_path, write_run, key, value, default
):
    write_run(tmp_path / "a", 1)  # a config of an earlier version
    write_run(tmp_path / "b", 2, seed=1, top={key: default})
    write_run(tmp_path / "c", 3, seed=2, top={key: value})
    seeds = {group.label: group.seeds for group in compare(tmp_path).groups}
    assert list(seeds.values()) == [[0, 1], [2]]
    assert next(iter(seeds)) == "sac"
    assert [len(group.members) for group in gather([str(tmp_path)]).groups] == [2, 1]
    assert compare(tmp_path, by=["batch_size"]).notes == [f"sac on X-v1 pools runs that differ in {key}"]


def test_benches_that_differ_in_callbacks_do_not_have_the_same_settings(tmp_path, write_run):
    for name, callbacks in (("a", []), ("b", ["mine:Stop"])):
        folder = tmp_path / name / "sac-X-v1"
        write_run(folder / "seed_0", 1, top={"callbacks": callbacks})
        (tmp_path / name / "bench.yaml").write_text("algos: [sac]\nenvs: [X-v1]\nseeds: [0]\n")
        run = {"seed": 0, "score": {"return_mean": 4.0}, "curve": []}
        (folder / "result.json").write_text(json.dumps({"algo": "sac", "env": "X-v1", "dataset": None, "runs": [run]}))
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [group.label for group in found.groups] == ["sac", "sac callbacks=['mine:Stop']"]
    assert found.notes == []


def test_how_often_a_run_was_evaluated_separates_nothing(tmp_path, write_run):
    write_run(tmp_path / "a", 1, top={"eval_interval": 10, "eval_episodes": 5})
    write_run(tmp_path / "b", 2, seed=1, top={"eval_interval": 20})
    assert [group.seeds for group in compare(tmp_path).groups] == [[0, 1]]


def test_results_without_run_directories_are_separated_by_the_configs_they_were_trained_with(tmp_path):
    file = tmp_path / "mine.yaml"  # edited between the benches
    file.write_text("{algo: sac, env_id: X-v1, algo_kwargs: {learning_rate: 0.003}}")
    for name, rate in (("a", 0.001), ("b", 0.003)):
        (tmp_path / name / "mine").mkdir(parents=True)
        (tmp_path / name / "bench.yaml").write_text(f"{{configs: [{file}], seeds: [0]}}")
        config = {"algo": "sac", "env_id": "X-v1", "algo_kwargs": {"learning_rate": rate}}
        run = {"seed": 0, "score": {"return_mean": 4.0}, "curve": []}
        result = {"algo": "sac", "env": "X-v1", "dataset": None, "config": config, "runs": [run]}
        (tmp_path / name / "mine" / "result.json").write_text(json.dumps(result))
    found = compare(tmp_path)
    assert [group.options for group in found.groups] == [{"learning_rate": 0.001}, {"learning_rate": 0.003}]
    assert found.notes == gather([str(tmp_path)]).notes == []
