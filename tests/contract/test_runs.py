"""What every run of the catalogue must do: repeat itself, and resume as if it had never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.experiment.config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks import StopAtStep


@pytest.fixture(scope="module")
def finished(case, tmp_path_factory) -> Path:
    """A run that was never stopped, to compare with."""
    return run_training(parse_config(case.config(output_dir=str(tmp_path_factory.mktemp("whole"))))).run_dir


def test_the_same_seed_twice_is_byte_identical(case, finished, tmp_path):
    again = run_training(parse_config(case.config(output_dir=str(tmp_path / "again")))).run_dir
    assert compare_runs(finished, again) == []


def test_another_seed_is_another_run(case, finished, tmp_path):
    other = run_training(parse_config(case.config(output_dir=str(tmp_path / "other"), seed=1))).run_dir
    assert compare_runs(finished, other)


def test_resume_equals_never_having_stopped(case, finished, tmp_path):
    early, late = case.stops
    told: list[str] = []
    halved = run_training(parse_config(case.config(output_dir=str(tmp_path / "halved"))), callbacks=[StopAtStep(early)])
    again = resume_run(halved.run_dir, callbacks=[StopAtStep(late)], say=told.append)
    assert [(each.status, each.steps) for each in (halved, again)] == [("stopped", early), ("stopped", late)]
    assert resume_run(halved.run_dir, say=told.append).status == "finished"
    assert told == []
    assert compare_runs(finished, halved.run_dir) == []


def test_a_learner_from_data_goes_on_online_and_resumes_there(case_from_data, tmp_path):
    case = case_from_data
    options = {"total_timesteps": 20, "online_steps": 60, "checkpoint_interval": 20, "eval_interval": 40}
    whole = run_training(parse_config(case.config(output_dir=str(tmp_path / "whole"), **options)))
    assert whole.steps == 80
    assert whole.updates > 20
    in_the_second_episode = StopAtStep(20 + 42)
    halved = run_training(
        parse_config(case.config(output_dir=str(tmp_path / "halved"), **options)), callbacks=[in_the_second_episode]
    )
    assert halved.status == "stopped"
    resume_run(halved.run_dir)
    assert compare_runs(whole.run_dir, halved.run_dir) == []
