"""Several steps ahead, drawn by priorities or stacked of frames, a run still resumes as if it had never stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

SEEDS = (0, 3)
IN_AN_EPISODE = 54  # of two environments, where episodes have 25 steps, or 4
PIXELS = "FramesOfATest-v0"
RUNS: dict[str, dict[str, Any]] = {
    "dqn": {"env_id": "CartPole-v1", "algo_kwargs": {"prioritized": True}},
    "fqf": {"env_id": "CartPole-v1", "algo_kwargs": {"prioritized": True, "num_quantiles": 8, "noisy": True}},
    "sac": {"env_id": "Pendulum-v1", "algo_kwargs": {}},
    "td3": {"env_id": "Pendulum-v1", "algo_kwargs": {"action_noise": "ornstein_uhlenbeck"}},
    "redq": {"env_id": "Pendulum-v1", "algo_kwargs": {"num_critics": 3, "updates_per_collect": 2, "policy_delay": 2}},
    "dqn of frames": {"env_id": PIXELS, "algo_kwargs": {"prioritized": True, "stacked_frames": True}},
}
Configured = Callable[[Path, int], TrainConfig]


class Pixels(gym.Env[Any, Any]):
    """A new picture at every step; episodes are cut after four steps, or end by a coin."""

    observation_space = gym.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 4
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._picture(), float(action), bool(self.np_random.random() < 0.1), self.left == 0, {}

    def _picture(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)


@pytest.fixture(autouse=True)
def _pixels() -> Iterator[None]:
    gym.register(PIXELS, lambda **_: FrameStackObservation(Pixels(), 3))
    yield
    del gym.registry[PIXELS]


@pytest.fixture(params=list(RUNS))
def configured(request: pytest.FixtureRequest) -> Configured:
    """A run of less than a second, with more rows than its ring holds."""
    chosen = RUNS[request.param]
    options = {"batch_size": 16, "hidden_sizes": [8], "learning_starts": 20, "buffer_size": 44, "n_step": 3}
    run = {
        "algo": request.param.split()[0], "num_envs": 2, "total_timesteps": 64, "env_kwargs": {"max_episode_steps": 25},
        "eval_episodes": 1, "eval_interval": 32, "checkpoint_interval": 24, **chosen,
        "algo_kwargs": {**options, **chosen["algo_kwargs"]},
    }  # fmt: skip
    return lambda folder, seed: parse_config({**run, "seed": seed, "output_dir": str(folder / f"seed_{seed}")})


def test_a_run_resumes_byte_for_byte(configured, tmp_path):
    whole = run_training(configured(tmp_path / "whole", 0))
    halved = run_training(configured(tmp_path / "halved", 0), callbacks=[StopAtStep(IN_AN_EPISODE)])
    assert halved.status == "stopped"
    resume_run(halved.run_dir)
    assert compare_runs(whole.run_dir, halved.run_dir) == []


def test_a_population_resumes_byte_for_byte_and_a_member_goes_on_alone(configured, tmp_path):
    whole, halved = ([configured(tmp_path / name, seed) for seed in SEEDS] for name in ("whole", "halved"))
    finished = run_population(whole)
    assert {result.status for result in run_population(halved, callbacks=[StopAtStep(IN_AN_EPISODE)])} == {"stopped"}
    resumed = run_population(halved)
    assert [compare_runs(a.run_dir, b.run_dir) for a, b in zip(finished, resumed, strict=True)] == [[], []]
    assert resume_run(finished[1].run_dir, steps=80).steps == 80
