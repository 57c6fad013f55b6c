"""Runs with n-step returns, priorities or stacked frames resume byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

from rl_training.algorithms import CATALOGUE
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import ReplayLane, lane_class

SEEDS = (0, 3)
IN_AN_EPISODE = 54  # of two environments, where episodes have 25 steps, or 4
PIXELS = "FramesOfATest-v0"
ENVS = {"box": "Pendulum-v1", "discrete": "CartPole-v1"}
REPLAY = [name for name, learner in CATALOGUE.items() if lane_class(learner) is ReplayLane]
STACKED = [name for name in REPLAY if "stacked_frames" in CATALOGUE[name].config_type.model_fields]
DERIVED = [name for name in REPLAY if any(base in CATALOGUE.values() for base in CATALOGUE[name].__mro__[1:])]
PLAIN = [name for name in DERIVED if name not in ("crossq", "rainbow")]  # not with batch statistics or all options
OWN_DISCRETE = [name for name in REPLAY if CATALOGUE[name].discrete_type is not None]
VECTORS = [
    *((name, ENVS[CATALOGUE[name].action_kinds[0]], name) for name in REPLAY),
    *((name, ENVS["discrete"], f"{name}-discrete") for name in OWN_DISCRETE),
]
FRAMES = [(name, PIXELS, f"{name}-frames") for name in STACKED]
OPTIONS = {  # those that the algorithm has
    "action_noise": "ornstein_uhlenbeck",
    "batch_size": 16,
    "buffer_size": 44,
    "critic_hidden_sizes": [8],
    "hidden_sizes": [8],
    "learning_starts": 40,
    "n_step": 3,
    "noisy": True,
    "num_critics": 3,
    "num_quantiles": 8,
    "policy_delay": 2,
    "prioritized": True,
    "updates_per_collect": 2,
}
Configured = Callable[[Path, int], TrainConfig]


def runs(cases: list[tuple[str, str, str]], *, slow: Collection[str]) -> list[Any]:
    """Names and environments as parameters; those of the algorithms in `slow` are marked as slow."""
    return [
        pytest.param(name, env_id, id=case, marks=[pytest.mark.slow] * (name in slow)) for name, env_id, case in cases
    ]


class Pixels(gym.Env[Any, Any]):
    """A random image at every step; episodes are truncated after four steps, or terminate with probability 0.1."""

    observation_space = gym.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 4
        return self._image(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._image(), float(action), bool(self.np_random.random() < 0.1), self.left == 0, {}

    def _image(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)


@pytest.fixture(autouse=True)
def _pixels() -> Iterator[None]:
    gym.register(PIXELS, lambda **_: FrameStackObservation(Pixels(), 3))
    yield
    del gym.registry[PIXELS]


@pytest.fixture
def configured(name: str, env_id: str) -> Configured:
    """A run of less than a second, with more transitions than its replay buffer holds."""
    learner = CATALOGUE[name]
    options = {option: value for option, value in OPTIONS.items() if option in learner.config_type.model_fields}
    if env_id != ENVS["box"]:
        options.pop("action_noise", None)
    run = {
        "algo": name, "env_id": env_id, "num_envs": 2,
        "total_timesteps": 64, "env_kwargs": {"max_episode_steps": 25},
        "eval_episodes": 1, "eval_interval": 32, "checkpoint_interval": 24,
        "algo_kwargs": {**options, **({"stacked_frames": True} if env_id == PIXELS else {})},
    }  # fmt: skip
    return lambda folder, seed: parse_config({**run, "seed": seed, "output_dir": str(folder / f"seed_{seed}")})


@pytest.mark.parametrize(("name", "env_id"), [*runs(VECTORS, slow=PLAIN), *runs(FRAMES, slow=DERIVED)])
def test_a_run_resumes_byte_for_byte(configured, tmp_path):
    whole = run_training(configured(tmp_path / "whole", 0))
    halved = run_training(configured(tmp_path / "halved", 0), callbacks=[StopAtStep(IN_AN_EPISODE)])
    assert halved.status == "stopped"
    resume_run(halved.run_dir)
    assert compare_runs(whole.run_dir, halved.run_dir) == []


@pytest.mark.parametrize(("name", "env_id"), runs([case for case in VECTORS if case[0] in DERIVED], slow=()))
def test_a_derived_algorithm_trains_as_a_population(configured, tmp_path):
    found = run_population([configured(tmp_path, seed) for seed in SEEDS])
    assert [(result.status, result.steps) for result in found] == [("finished", 64)] * 2


# In make test, derived algorithms train as populations above, and all resume as single runs in test_runs.py.
@pytest.mark.parametrize(("name", "env_id"), runs([*VECTORS, *FRAMES], slow=DERIVED))
def test_a_population_resumes_byte_for_byte_and_a_member_continues_alone(configured, tmp_path):
    whole, halved = ([configured(tmp_path / name, seed) for seed in SEEDS] for name in ("whole", "halved"))
    finished = run_population(whole)
    assert {result.status for result in run_population(halved, callbacks=[StopAtStep(IN_AN_EPISODE)])} == {"stopped"}
    resumed = run_population(halved)
    assert [compare_runs(a.run_dir, b.run_dir) for a, b in zip(finished, resumed, strict=True)] == [[], []]
    assert resume_run(finished[1].run_dir, steps=80).steps == 80
