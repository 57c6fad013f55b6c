"""A run's learning curve."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.reporting.plots import save_learning_curve

Row = dict[str, Any]


def write_run(run_dir: Path, rows: list[Row], ending: str = "") -> Path:
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("algo: sac\nenv_id: Pendulum-v1\nseed: 3\ndataset: null\n")
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + ending)
    return run_dir


def training(step: int, return_: float) -> Row:
    return {"step": step, "updates": step, "critic_loss": 0.1, "episode_return": return_, "time": 0.0}


def evaluation(step: int, mean: float, std: float) -> Row:
    return {"step": step, "evaluation": {"step": step, "return_mean": mean, "return_std": std, "episodes": 10}}


ROWS = [training(200, -1300.0), evaluation(200, -1400.0, 120.0), training(400, -700.0), evaluation(400, -150.0, 80.0)]


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


def test_the_curve_is_a_picture_in_the_run(tmp_path):
    picture = save_learning_curve(write_run(tmp_path / "run", ROWS))
    assert picture == tmp_path / "run" / "curve.png"
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["episode_return", "evaluation"])
def test_training_or_evaluation_alone_is_enough(tmp_path, kind):
    rows = [row for row in ROWS if kind in row]
    assert save_learning_curve(write_run(tmp_path / "run", rows)) == tmp_path / "run" / "curve.png"


def test_a_last_line_cut_short_is_left_out(tmp_path):
    whole, cut = write_run(tmp_path / "whole", ROWS), write_run(tmp_path / "cut", ROWS, ending='{"step": 600, "ep')
    save_learning_curve(whole)
    save_learning_curve(cut)
    assert (cut / "curve.png").read_bytes() == (whole / "curve.png").read_bytes()


def test_without_returns_there_is_nothing_to_draw(tmp_path):
    rows = [{"step": 100, "updates": 100, "critic_loss": 0.5}]
    assert save_learning_curve(write_run(tmp_path / "run", rows)) is None
    assert not (tmp_path / "run" / "curve.png").exists()


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert save_learning_curve(write_run(tmp_path / "run", ROWS)) is None
