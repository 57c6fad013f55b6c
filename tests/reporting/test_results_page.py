"""The page, the table and the configs show what benchmarks/results stores, each seed and each budget."""

from __future__ import annotations

import json
import math
import runpy
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from rl_training.algorithms import PPOConfig
from rl_training.experiment.config.packaged import load_config, packaged_config_text, packaged_configs
from rl_training.experiment.config.train_config import parse_config

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
pytestmark = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="no folder benchmarks/results, as in an archive of the source"
)


@pytest.fixture(scope="module")
def scripts():
    """Makes the modules of benchmarks/ importable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield lambda name: runpy.run_path(str(BENCHMARKS / f"{name}.py"))


@pytest.fixture(scope="module")
def rows(scripts):
    return scripts("results_table")["stored_rows"](RESULTS)


def test_the_page_of_results_is_what_its_script_writes(scripts, rows):
    assert scripts("results_table")["whole_page"](rows) == (ROOT / "docs" / "results.md").read_text()


def test_the_results_on_the_page_of_performance_are_what_its_script_writes(scripts):
    page = (ROOT / "docs" / "performance.md").read_text()
    assert scripts("performance_page")["whole_page"](page) == page


def test_the_stored_table_is_what_its_script_writes(scripts, rows):
    assert scripts("results_table")["table_text"](rows) == (RESULTS / "table.json").read_text()


def test_stored_runs_of_ppo_end_where_the_rollouts_of_their_config_end():
    stored = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("ppo_*.json")}
    ends = {name: (each["config"], each["budget"], each["runs"]) for name, each in stored.items() if each.get("config")}
    assert ends
    for name, (config, budget, runs) in ends.items():
        packaged = parse_config(load_config(config))
        rollout = PPOConfig(**packaged.algo_kwargs).num_steps * packaged.num_envs
        last = {run["curve"][-1][0] for run in runs}
        assert last == {math.ceil(budget / rollout) * rollout}, name


def test_every_row_of_the_table_has_its_budget_and_every_seed():
    table = json.loads((RESULTS / "table.json").read_text())
    assert table
    for row in table:
        assert isinstance(row["algo"], str), row
        assert isinstance(row["env"], str), row
        assert isinstance(row["budget"], int), row
        assert row["budget"] > 0, row
        assert all(isinstance(score, float) for score in row["seeds"]), row
        assert row["seeds"], row
        assert row["published"] is None or isinstance(row["published"], (int, float)), row


def test_the_table_shows_the_stored_scores(rows):
    result = json.loads((RESULTS / "sac_pendulum.json").read_text())
    (row,) = [row for row in rows if row.file == "sac_pendulum.json"]
    assert (row.algo, row.env, row.budget, row.config) == ("sac", "Pendulum-v1", 20_000, "sac/pendulum")
    assert row.seeds == [run["score"] for run in result["runs"]]
    assert row.middle == pytest.approx(result["interquartile_mean"])
    assert [(figure.score, figure.source) for figure in row.published()] == [(-157, "RL Zoo")]


@pytest.mark.parametrize("name", packaged_configs())
def test_every_config_names_the_score_it_reached(scripts, rows, name):
    score_line = import_module("scores.config_lines").score_line
    lines = [line for line in packaged_config_text(name).splitlines() if line.startswith("# Score: ")]
    assert lines == [score_line(name, rows)], "run python benchmarks/results_table.py"


def test_the_line_of_a_config_agrees_with_its_stored_result():
    assert "\n# Score: -123.1 after 20k steps, 5 seeds.\n" in packaged_config_text("sac/pendulum")
    assert "\n# Score: not run to the end.\n" in packaged_config_text("td3/walker2d")


def test_scores_stay_apart_from_published_ones_of_another_budget(rows):
    for row in rows:
        figures = row.published()
        if row.difference() is not None:
            assert figures[0].budget == row.budget
            assert len(row.seeds) > 2


def test_published_budgets_that_nobody_ran_are_listed_as_not_run(scripts, rows):
    page = import_module("scores.page")
    everything = page.not_run([])
    assert "| SAC | Walker2d-v5 | 4,537 ± 495 after 1M (SimbaV2's SAC, v4, 10 seeds) | not run |" in everything
    run = replace(rows[0], algo="sac", env="Walker2d-v5", dataset=None, budget=1_000_000)
    assert "| SAC | Walker2d-v5 |" not in page.not_run([run])


def test_commands_of_changed_settings_are_not_those_of_a_packaged_config(scripts):
    described = import_module("scores.stored").described
    unchanged = described("rl-training train sac/hopper --steps 300000 --set eval_interval=50000 --seed SEED")
    assert (unchanged["config"], unchanged["budget"], unchanged["planned"]) == ("sac/hopper", 300_000, 1_000_000)
    changed = described("rl-training train sac/hopper --set target_entropy=-1 --dataset a/b.hdf5")
    assert (changed["config"], changed["algo"], changed["dataset"]) == (None, "sac", "b")
    bare = described("PYTHONPATH=benchmarks rl-training train dqn minatar_games:MinAtar/Breakout-v0 --steps 100")
    assert (bare["config"], bare["env"], bare["budget"]) == (None, "MinAtar/Breakout-v0", 100)


@pytest.mark.parametrize(
    ("scores", "result", "interval"),
    [([-150.0], "-150.0", None), ([-150.0, -150.0], "-150.0 [-150.0, -150.0]", [-150.0, -150.0])],
)
def test_a_cell_of_one_seed_has_no_interval(scripts, scores, result, interval):
    script = scripts("figures")
    runs = [{"seed": seed, "score": score, "commit": None} for seed, score in enumerate(scores)]
    summary = script["summary"](script["CELLS"]["sac_pendulum"], runs, data=None)
    assert (summary["result"], summary["interval_95"]) == (result, interval)


def test_curves_stand_beside_the_scores_of_one_source_up_to_their_last_step(scripts, tmp_path):
    curves = import_module("scores.curves")
    runs = [{"curve": [[100_000, 1000.0 + seed], [300_000, 2000.0 + seed]]} for seed in range(3)]
    result = {"algo": "sac", "env": "Hopper-v4", "setting": None, "runs": runs}
    shown = curves.first_source(result, 300_000)
    assert [(figure.budget, figure.score, figure.source) for figure in shown] == [
        (100_000, 1104, "SimbaV2's SAC"),
        (300_000, 2160, "SimbaV2's SAC"),
    ]
    (tmp_path / "result.json").write_text(json.dumps(result))
    curves.save_curves([tmp_path / "result.json"], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_random_data_of_two_environments_have_a_panel_each(scripts, rows):
    task_name = import_module("scores.pictures").task_name
    random = [row for row in rows if row.dataset == "random data"]
    assert {task_name(row, rows) for row in random} == {f"{row.env}, random data" for row in random}
    assert len({row.env for row in random}) == 2
    assert {task_name(row, rows) for row in rows if row.dataset == "hopper-medium"} == {"hopper-medium"}
