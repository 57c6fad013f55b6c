"""Run directories become rows of the table: budgets, seeds, training returns and published scores beside them."""

from __future__ import annotations

import json
import runpy
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")
FINAL = {0: 2000.0, 1: 3000.0, 2: 2500.0}


@pytest.fixture
def store(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return runpy.run_path(str(BENCHMARKS / "store_runs.py"))


def run_directory(folder: Path, seed: int, final: float, *, evaluated=(50_000, 100_000, 300_000, 1_000_000)) -> Path:
    path = folder / f"seed_{seed}"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(f"algo: sac\nenv_id: Hopper-v5\nseed: {seed}\ntotal_timesteps: 1000000\n")
    argv = ["/bin/rl-training", "train", "sac/hopper", "--seeds", "0-2", "--output", str(folder), "--device", "cuda"]
    record = {"argv": argv, "git": "abc", "hardware": {"platform": "Linux", "cpu": "Xeon", "cores": 16, "gpu": "H200"}}
    (path / "run.json").write_text(json.dumps({**record, "versions": {"torch": "2"}}))
    lines = []
    for step in evaluated:
        lines.append({"step": step, "episode_return": 0.5 * final * step / 1e6})
        scored = {"step": step, "return_mean": final * step / 1e6, "episodes": 10}
        lines.append({"step": step, "evaluation": scored})
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_runs_become_rows_at_every_published_budget(store, tmp_path, monkeypatch, capsys):
    for seed, final in FINAL.items():
        run_directory(tmp_path / "runs", seed, final)
    out = tmp_path / "results" / "sac_hopper.json"
    monkeypatch.setattr("sys.argv", ["store_runs.py", str(tmp_path / "runs"), "--out", str(out)])
    store["main"]()
    assert "2,500.0" in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result["commands"] == ["rl-training train sac/hopper --device cuda --seed SEED --output RUN"]
    assert result["hardware"] == "Xeon, 16 cores, H200"
    rows = import_module("scores.stored").stored_rows(out.parent)
    assert [(row.budget, row.final, row.config) for row in rows] == [
        (100_000, False, "sac/hopper"),
        (300_000, False, "sac/hopper"),
        (1_000_000, True, "sac/hopper"),
    ]
    last = rows[-1].to_json()
    assert last["seeds"] == list(FINAL.values())
    assert last["training_returns"] == [0.5 * final for final in FINAL.values()]
    assert last["published"] == 2786
    assert last["difference"]["mean"] == pytest.approx(2500 - 2786)
    low, high = last["difference"]["interval_95"]
    assert low < 2500 - 2786 < high
    assert rows[0].training_returns == [0.05 * final for final in FINAL.values()]


def test_training_returns_are_those_of_the_last_tenth_if_evaluations_are_rare(store, tmp_path):
    path = run_directory(tmp_path, 0, 1e6, evaluated=(1_000_000,))
    lines = [{"step": step, "episode_return": value} for step, value in ((500_000, -9.0), (900_000, 2.0))]
    last = {"step": 1_000_000, "episode_return": 4.0}
    scored = {"step": 1_000_000, "evaluation": {"step": 1_000_000, "return_mean": 7.0, "episodes": 10}}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, last, scored]))
    assert store["training_curve"](store["read_run"](path)) == [[1_000_000, 3.0]]


def test_runs_that_were_stopped_count_up_to_the_step_that_all_reached(store, tmp_path):
    paths = [run_directory(tmp_path, 0, 1e6), run_directory(tmp_path, 1, 1e6, evaluated=(50_000, 100_000))]
    result = store["summary"]([store["read_run"](path) for path in paths])
    assert (result["budget"], result["planned"]) == (100_000, 1_000_000)
    assert [run["score"] for run in result["runs"]] == [100_000, 100_000]


def test_a_seed_given_twice_is_refused(store, tmp_path):
    paths = [run_directory(tmp_path / "a", 0, 1.0), run_directory(tmp_path / "b", 0, 1.0)]
    with pytest.raises(ValueError, match="occurs twice"):
        store["summary"]([store["read_run"](path) for path in paths])


def test_a_folder_without_runs_is_refused(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["store_runs.py", str(tmp_path), "--out", str(tmp_path / "x.json")])
    with pytest.raises(SystemExit) as ended:
        store["main"]()
    assert ended.value.code == 2
    assert "no run directory found" in capsys.readouterr().err
