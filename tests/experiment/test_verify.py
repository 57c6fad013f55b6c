"""Comparing two runs byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import DQN
from rl_training.experiment.verify import compare_runs, verify_run
from rl_training.runtime.callbacks.logging import LogMetrics
from rl_training.runtime.checkpoints.writing import save_checkpoint

ROWS: list[dict[str, Any]] = [
    {"step": 5, "critic_loss": 0.5, "time": 10.0},
    {"step": 10, "evaluation": {"return_mean": -1.0}, "time": 11.0},
]


def write_run(path: Path, *, weight=(1.0, float("nan")), step=10, updates=10, rows=ROWS) -> Path:
    state = {"learner": {"weight": torch.tensor(weight)}, "trainer": {"updates": updates, "best": None}}
    save_checkpoint(path / "checkpoints", step, state, info={"started": str(path)})
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_equal_runs_may_differ_in_path_and_time(tmp_path):
    later = [{**row, "time": row["time"] + 100} for row in ROWS]
    assert compare_runs(write_run(tmp_path / "a"), write_run(tmp_path / "b", rows=later)) == []


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"weight": (1.0, 2.0)}, "learner.safetensors: weight differs at step 10"),
        ({"weight": (1.0,)}, "learner.safetensors: weight differs at step 10"),
        ({"updates": 11}, "state.json differs at step 10"),
        ({"rows": ROWS[:1]}, "metrics.jsonl has 2 rows in one run, 1 in the other"),
        (
            {"rows": [ROWS[0], {**ROWS[1], "evaluation": {"return_mean": -2.0}}]},
            "metrics.jsonl differs first in row 2 (step 10): evaluation",
        ),
    ],
)
def test_differences_are_named(tmp_path, changes, difference):
    assert compare_runs(write_run(tmp_path / "a"), write_run(tmp_path / "b", **changes)) == [difference]


def test_zeros_of_different_sign_differ(tmp_path):
    runs = write_run(tmp_path / "a", weight=(0.0, 0.0)), write_run(tmp_path / "b", weight=(0.0, -0.0))
    assert compare_runs(*runs) == ["learner.safetensors: weight differs at step 10"]


def test_runs_at_different_steps_are_not_compared_further(tmp_path):
    (difference,) = compare_runs(write_run(tmp_path / "a"), write_run(tmp_path / "b", step=20))
    assert "step 10" in difference
    assert "step 20" in difference


def test_the_best_checkpoints_are_compared_too(tmp_path):
    runs = []
    for name, weight in (("a", 1.0), ("b", 2.0)):
        for step, value in ((5, weight), (10, 0.0)):
            state = {"learner": {"weight": torch.tensor(value)}, "trainer": {"best": [5, 0.0]}}
            save_checkpoint(tmp_path / name / "checkpoints", step, state, info={})
        (tmp_path / name / "metrics.jsonl").touch()
        runs.append(tmp_path / name)
    assert compare_runs(*runs) == ["learner.safetensors: weight differs at step 5"]


def test_a_run_of_a_version_that_did_not_log_schedules_is_verified(tmp_path, monkeypatch):
    run = tmp_path / "run"
    agent = DQN(
        "CartPole-v1", total_timesteps=40, output_dir=str(run), log_interval=10, checkpoint_interval=20,
        eval_interval=0, learning_starts=8, batch_size=8, hidden_sizes=(8,),
    )  # fmt: skip
    with monkeypatch.context() as earlier:
        log = LogMetrics.on_step_end
        earlier.setattr(LogMetrics, "on_step_end", lambda self, state: (state.scheduled.clear(), log(self, state)))
        agent.learn()
    assert "epsilon" not in (run / "metrics.jsonl").read_text()
    found = verify_run(run, steps=20)
    assert (found.repeat, found.resume) == ([], [])
