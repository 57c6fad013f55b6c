"""The pictures of a study."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rl_training.reporting.tuning_plots import save_history, save_importance

pytest.importorskip("matplotlib")


def trials(*states: tuple[str, float | None]) -> list[Any]:
    return [SimpleNamespace(number=number, state=state, value=value) for number, (state, value) in enumerate(states)]


def test_the_history_shows_trials_of_every_kind(tmp_path):
    shown = trials(("done", 1.0), ("pruned", 5.0), ("done", 3.0), ("failed", None), ("running", 9.0), ("done", 2.0))
    assert save_history(shown, tmp_path / "history.png") == tmp_path / "history.png"
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_of_one_trial_is_drawn(tmp_path):
    assert save_history(trials(("done", 1.0)), tmp_path / "history.png") is not None


def test_nothing_is_drawn_without_a_score_or_an_importance(tmp_path):
    assert save_history(trials(("failed", None), ("pruned", 1.0)), tmp_path / "history.png") is None
    assert save_importance({}, tmp_path / "importance.png") is None
    assert list(tmp_path.iterdir()) == []


def test_the_importance_of_each_key_is_a_bar(tmp_path):
    save_importance({"learning_rate": 0.9, "network.activation": 0.1}, tmp_path / "importance.png")
    assert (tmp_path / "importance.png").read_bytes().startswith(b"\x89PNG")
