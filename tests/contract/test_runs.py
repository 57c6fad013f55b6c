"""What every run of the catalogue must do: repeat itself, and resume as if it had never stopped."""

from __future__ import annotations

import pytest

from rl_training.experiment.config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.engine import Callback


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.interval = step

    def on_step_end(self, state) -> None:
        if state.global_step >= self.interval:
            state.request_stop("the test asked")


@pytest.fixture
def finished(case, tmp_path):
    return run_training(parse_config(case.config(output_dir=str(tmp_path / "whole")))).run_dir


def test_the_same_seed_twice_is_byte_identical(case, finished, tmp_path):
    again = run_training(parse_config(case.config(output_dir=str(tmp_path / "again")))).run_dir
    assert compare_runs(finished, again) == []


def test_another_seed_is_another_run(case, finished, tmp_path):
    other = run_training(parse_config(case.config(output_dir=str(tmp_path / "other"), seed=1))).run_dir
    assert compare_runs(finished, other)


@pytest.mark.parametrize("stop", [25, 77])
def test_resume_equals_never_having_stopped(case, finished, tmp_path, stop):
    config = parse_config(case.config(output_dir=str(tmp_path / "halved")))
    halved = run_training(config, callbacks=[StopAt(stop)])
    if stop < config.total_timesteps:
        assert halved.status == "stopped"
    told: list[str] = []
    assert resume_run(halved.run_dir, say=told.append).status == "finished"
    assert told == []
    assert compare_runs(finished, halved.run_dir) == []


def test_a_learner_from_data_goes_on_online_and_resumes_there(case_from_data, tmp_path):
    case = case_from_data
    options = {"online_steps": 240, "checkpoint_interval": 20, "total_timesteps": 30, "eval_interval": 100}
    whole = run_training(parse_config(case.config(output_dir=str(tmp_path / "whole"), **options)))
    assert whole.steps == 270
    assert whole.updates > 30
    halved = run_training(
        parse_config(case.config(output_dir=str(tmp_path / "halved"), **options)), callbacks=[StopAt(250)]
    )
    assert halved.status == "stopped"
    resume_run(halved.run_dir)
    assert compare_runs(whole.run_dir, halved.run_dir) == []
