"""The runs on the page of `report`: unfinished, resumed, repeated, damaged, and their training time."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rl_training.reporting.report.gathering import gather

sys.path.insert(0, str(Path(__file__).parent))
from report_pages import page_of  # type: ignore[import-not-found]

sys.path.pop(0)
pytest.importorskip("bokeh")


@pytest.mark.parametrize(("status", "stored"), [("finished", 20.0), ("stopped", 20.0), ("finished", 45.0)])
def test_the_time_of_a_resumed_run_counts_all_its_parts_and_no_pause(tmp_path, write_run, status, stored):
    run = write_run(tmp_path / "runs" / "resumed", 5)
    log = [(100, 10.0, 1000.0), (200, 10.0, 1010.0), (300, 5.0, 9000.0)]  # stopped for hours after step 200
    rows = [{"step": step, "steps_per_second": speed, "time": time} for step, speed, time in log]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "status": status, "seconds": stored, "steps": 300}))
    assert f"{max(40.0, stored)} s of training" in page_of(tmp_path / "runs").text


def test_an_unfinished_population_counts_its_time_once(tmp_path, write_run):
    for seed in range(3):
        run = write_run(tmp_path / "runs" / f"seed_{seed}", 5, seed=seed)
        rows = [{"step": step, "steps_per_second": 10.0 + seed / 100, "time": step / 10} for step in (100, 200)]
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "population": [0, 1, 2]}))
        (run / "result.json").unlink()
    assert "20.0 s of training" in page_of(tmp_path / "runs").text


def test_unfinished_runs_are_shown_with_their_state_and_do_not_enter_the_score(runs, write_run):
    write_run(runs / "slow" / "seed_3", 500, seed=3, status="failed")
    write_run(runs / "slow" / "seed_4", 500, seed=4, status=None)
    write_run(runs / "slow" / "seed_5", 500, seed=5, status=None)
    os.utime(runs / "slow" / "seed_5" / "metrics.jsonl", (0, 0))
    page = page_of(runs)
    assert "without seeds 3-5, which have no final score" in page.text
    assert "3 finished, 1 training (100%), 1 incomplete, 1 failed" in page.text
    assert "no result at step 100 of 100; the last log entry is of 01 Jan 1970" in page.text
    (slow,) = (group for group in page.data["curves"][0]["groups"] if len(group["evaluation"]["seeds"]) == 6)
    assert slow["evaluation"]["middle"]["n"] == [3, 6]


def test_a_run_that_continues_after_it_was_stopped_is_training(tmp_path, write_run):
    run = write_run(tmp_path / "run", 5, status="stopped")
    (member,) = gather([str(run)]).members
    assert member.status == "stopped"
    os.utime(run / "result.json", (time.time() - 60, time.time() - 60))
    (member,) = gather([str(run)]).members
    assert member.status == "training"


def test_scores_so_far_are_shown_while_no_seed_has_finished(tmp_path, write_run):
    write_run(tmp_path / "runs" / "seed_0", 5, 7, status=None)
    page = page_of(tmp_path / "runs")
    assert "so far, at step 100: no seed has finished one seed: no interval 1 7.00" in page.text
    assert "One seed, so no band: sac" in page.text


def test_runs_without_evaluations_show_their_training_returns(tmp_path, write_run):
    write_run(tmp_path / "runs" / "a")
    page = page_of(tmp_path / "runs")
    assert "no evaluations; mean return of the last training episodes: 1.50" in page.text
    assert "returns of episodes in training are drawn: sac" in page.text
    assert [*page.data["curves"][0]["groups"][0]] == ["group", "training"]
    assert page.data["profiles"] == []


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
    (tmp_path / "runs").mkdir()
    page = page_of(tmp_path / "runs")
    assert "There are no runs yet" in page.text
    assert f"{tmp_path / 'runs'} has no runs yet" in page.text


def test_damaged_runs_are_named_and_the_others_shown(runs):
    (runs / "fast" / "seed_0" / "config.yaml").write_text("[")
    (runs / "fast" / "seed_1" / "metrics.jsonl").write_text('{"step": "many"}\n')
    page = page_of(runs)
    assert "fast/seed_0 cannot be read" in page.text
    assert "fast/seed_1 cannot be read" in page.text
    assert "4 runs in 2 groups" in page.text


ODD: list[Any] = [None, True, -1, 10**400, 1e400, "x", "\ud800", [], [[{}]], {"a": {"b": None}}, "$$x$$", "</script>"]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_values_in_the_files_of_a_run_never_stop_the_report(runs, write_run, value):
    names = ("env_id", "seed", "dataset", "total_timesteps", "allow", "action_range", "algo_kwargs")
    for number, name in enumerate(names):
        write_run(runs / "odd" / str(number), 1, 2, seed=number, top={name: value})
    for file in ("run.json", "result.json", "ope.json"):
        run = write_run(runs / "odd" / file, 1, 2, note=file)
        keys = ("status", "seconds", "stop_reason", "argv", "hardware", "versions", "choices", "git", "estimate")
        (run / file).write_text(json.dumps(dict.fromkeys((*keys, "warnings"), value)))
    run = write_run(runs / "odd" / "rows", 1, 2, note="rows")
    row = {"step": value, "time": value, "episode_return": value, "evaluation": {"step": 1, "return_mean": value}}
    (run / "metrics.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'evaluation': value})}\n[1]\n")
    page = page_of(runs)
    assert "3 11.00 10.00 to 12.00" in page.text
    assert len(page.scripts) == 5


def test_the_same_seed_twice_keeps_the_newest(tmp_path, write_run):
    write_run(tmp_path / "runs" / "a", 1)
    write_run(tmp_path / "runs" / "b", 2)
    os.utime(tmp_path / "runs" / "b" / "metrics.jsonl", (1e9, 1e9))
    page = page_of(tmp_path / "runs")
    older = f"Left out, because a newer run has the same setting and seed: {tmp_path}/runs/b."
    assert older in page.text
    assert "1 run in 1 group" in page.text
