"""What every run of the catalogue must do: repeat itself, and resume as if it had never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.experiment.agent import find_checkpoint
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import lane_class
from rl_training.testing import checks


@pytest.fixture(scope="module")
def finished(case, tmp_path_factory) -> Path:
    """A run that was never stopped, to compare with."""
    return checks.train(case, tmp_path_factory.mktemp("whole"))


def test_another_seed_is_another_run(case, finished, tmp_path):
    if lane_class(case.learner).takes_population:
        pytest.skip("test_population.py compares two seeds")
    assert compare_runs(finished, checks.train(case, tmp_path, seed=1))


def test_the_same_seed_is_byte_identical_after_two_stops(case, finished, tmp_path):
    checks.check_resume(case, tmp_path, finished)


ONLINE = {"total_timesteps": 20, "online_steps": 60, "checkpoint_interval": 20, "eval_interval": 40}


def test_an_offline_algorithm_continues_online(offline_case, tmp_path):
    result = run_training(parse_config(offline_case.config(output_dir=str(tmp_path), **ONLINE)))
    assert result.steps == 80
    assert result.updates > 20


def test_a_run_that_continued_online_resumes_there(resumed_online, tmp_path):
    whole, halved = (
        parse_config(resumed_online.config(output_dir=str(tmp_path / name), **ONLINE)) for name in ("whole", "halved")
    )
    finished = run_training(whole)
    in_the_second_episode = StopAtStep(20 + 42)
    assert run_training(halved, callbacks=[in_the_second_episode]).status == "stopped"
    resume_run(tmp_path / "halved")
    assert compare_runs(finished.run_dir, tmp_path / "halved") == []


@pytest.mark.parametrize(("env_id", "gradient"), [
    ("CartPole-v1", {}), pytest.param("Pendulum-v1", {"actor_gradient": "dynamics"}, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_world_model_whose_windows_begin_blank_resumes_too(tmp_path, env_id, gradient):
    options = {"recipe": "2023", "size": "tiny", "window": 6, "horizon": 3, "train_ratio": 8, "batch_size": 4,
               "learning_starts": 20, "buffer_size": 45, **gradient}  # fmt: skip
    run = {"algo": "dreamer", "env_id": env_id, "num_envs": 2, "total_timesteps": 60, "algo_kwargs": options,
           "eval_interval": 30, "eval_episodes": 1, "env_kwargs": {"max_episode_steps": 25}}  # fmt: skip
    whole, halved = (parse_config({**run, "output_dir": str(tmp_path / name)}) for name in ("whole", "halved"))
    finished = run_training(whole)
    assert finished.updates > 10
    assert find_checkpoint(finished.run_dir).group("lane")["source"]["latents"] == {}
    assert run_training(halved, callbacks=[StopAtStep(50)]).status == "stopped"
    resume_run(tmp_path / "halved")
    assert compare_runs(finished.run_dir, tmp_path / "halved") == []
