"""`dream` from a run or a checkpoint."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def catch(train_tiny_dreamer, tmp_path_factory) -> Path:
    """A run on Catch that the tests only read."""
    run: Path = tmp_path_factory.mktemp("runs") / "catch"
    train_tiny_dreamer(run, "Catch-v0")
    return run


def test_dream_writes_a_figure_and_prints_the_errors(cli, catch, tmp_path):
    command = ("dream", catch, "--rows", 2, "--output", tmp_path / "dream.png")
    result = cli(*command, "--json")
    assert result.exit_code == 0, result.stderr
    errors = json.loads(result.stdout)
    assert errors["prediction_error"] > 0
    assert errors["reconstruction_error"] > 0
    assert (tmp_path / "dream.png").read_bytes().startswith(b"\x89PNG")
    facts = dict(re.split(r" {2,}", line, maxsplit=1) for line in cli(*command).stdout.splitlines())
    assert facts["reconstruction error"] == f"{errors['reconstruction_error']:.4g} (mean squared, per pixel)"
    assert facts["imagination error"] == f"{errors['prediction_error']:.4g} (mean squared, per pixel)"
    assert facts["last frame repeated"].startswith(f"{errors['copy_last_error']:.4g} (the model has ")


def test_frames_that_never_change_leave_no_baseline_to_compare_with(cli, train_tiny_dreamer, tmp_path):
    train_tiny_dreamer(tmp_path / "run", "CueMemory-v0")
    blank = ("dream", tmp_path / "run", "--context", 2, "--steps", 4, "--output", tmp_path / "dream.png")
    assert "last frame repeated   no error: nothing moves in these frames" in cli(*blank).stdout.splitlines()
    assert json.loads(cli(*blank, "--json").stdout)["of_copy_last"] is None


def test_a_dream_needs_a_known_format_and_matplotlib(cli, catch, tmp_path, monkeypatch):
    result = cli("dream", tmp_path / "no_run", "--output", "dream.jpg")
    assert (result.exit_code, result.stderr) == (2, "error: --output must end in .png, .pdf or .svg, got dream.jpg\n")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("dream", catch, "--output", tmp_path / "dream.png")
    assert result.stderr == 'error: a plot needs matplotlib: pip install "rl-training[plot]"\n'


def test_only_a_world_model_dreams(cli, finished, tmp_path):
    result = cli("dream", finished["run_dir"], "--output", tmp_path / "dream.png")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ppo has no world model; use a dreamer agent" in result.stderr
