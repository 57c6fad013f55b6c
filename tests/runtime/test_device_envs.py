"""Training in device environments: every lane that acts, exact resume, populations, and captured rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.seeds.sweep import train_seeds
from rl_training.runtime.lanes.captured_steps import CapturedCollect, stacked_steps
from rl_training.runtime.lanes.rollout import RolloutLane

SMALL: dict[str, Any] = {"hidden_sizes": [8], "batch_size": 16}
CONSTANT_EPSILON = {"epsilon_start": 0.3, "epsilon_end": 0.3}  # its schedule follows the planned steps, which differ
RUNS = {
    "ppo": {"algo": "ppo", "env_id": "CartPole-v1", "algo_kwargs": {**SMALL, "num_steps": 16}},
    "ppo with memory": {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "algo_kwargs": {**SMALL, "num_steps": 16, "epochs": 2, "network": {"memory": "lstm", "memory_size": 8}},
    },
    "pqn": {"algo": "pqn", "env_id": "CartPole-v1", "algo_kwargs": {**SMALL, **CONSTANT_EPSILON, "num_steps": 16}},
    "pqn with images": {
        "algo": "pqn",
        "env_id": "rl_training.envs.device.minatar:Breakout",
        "algo_kwargs": {**SMALL, **CONSTANT_EPSILON, "num_steps": 16},
    },
    "dqn": {"algo": "dqn", "env_id": "CartPole-v1", "algo_kwargs": {**SMALL, "learning_starts": 64, "n_step": 3}},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {**SMALL, "learning_starts": 64}},
    "td3": {"algo": "td3", "env_id": "MountainCarContinuous-v0", "algo_kwargs": {**SMALL, "learning_starts": 64}},
}


def slow_but(fast: tuple[str, ...], names: Iterable[str]) -> list[Any]:
    """Names as parameters; those that are not in `fast` are marked as slow."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def config(tmp_path: Path, name: str = "ppo", folder: str = "run", **changes: Any) -> Any:
    values = {"total_timesteps": 512, "num_envs": 4, "env_backend": "device", "eval_episodes": 1, "log": (),
              "eval_interval": 0, "checkpoint_interval": 256, "output_dir": str(tmp_path / folder)}  # fmt: skip
    return parse_config({**values, **RUNS[name], **changes})


def weights(run: Path) -> dict[str, bytes]:
    last = max(run.glob("checkpoints/step_*"))
    return {file.name: file.read_bytes() for file in last.rglob("*") if file.suffix == ".safetensors"}


@pytest.mark.parametrize("name", slow_but(("ppo with memory", "pqn with images", "sac"), RUNS))
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path, name):
    whole = run_training(config(tmp_path, name, "whole"))
    half = run_training(config(tmp_path, name, "half", total_timesteps=256))
    resumed = resume_run(half.run_dir, steps=512)
    assert (whole.steps, resumed.steps) == (512, 512)
    assert weights(whole.run_dir) == weights(resumed.run_dir) != {}


@pytest.mark.parametrize("name", ["ppo", "pqn", "pqn with images"])
def test_a_rollout_as_a_gpu_captures_it_holds_what_single_steps_hold(tmp_path, name, monkeypatch):
    stepped, original = run_training(config(tmp_path, name, "stepped")), RolloutLane.__init__

    def with_stacked_steps(lane: Any, learner: Any, actor: Any, buffer: Any, options: Any) -> None:
        original(lane, learner, actor, buffer, options)
        lane.captured = partial(stacked_steps, actor, options.num_steps)

    monkeypatch.setattr(RolloutLane, "__init__", with_stacked_steps)
    stacked = run_training(config(tmp_path, name, "stacked"))
    assert weights(stepped.run_dir) == weights(stacked.run_dir) != {}


def test_episodes_are_logged(tmp_path):
    result = run_training(config(tmp_path, log_interval=128))
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(5 < row["episode_return"] == row["episode_length"] < 100 for row in rows)


def test_an_evaluation_plays_gymnasiums_environment(tmp_path):
    result = run_training(config(tmp_path, eval_interval=512, eval_episodes=3))
    assert result.evaluation is not None
    assert result.evaluation["episodes"] == 3


def test_seeds_train_as_a_population_as_they_do_alone(tmp_path):
    configs = [config(tmp_path, "dqn", f"seed_{seed}", seed=seed) for seed in (0, 1)]
    population = train_seeds(configs)
    assert [result.steps for result in population] == [512, 512]
    first, second = (weights(result.run_dir) for result in population)
    assert first != second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": "Taxi-v3"}, "env_backend: device does not have Taxi-v3; it has CartPole-v1, Pendulum-v1"),
        ({"env_kwargs": {"sutton_barto_reward": True}}, "device has CartPole-v1 without options; remove env_kwargs"),
        ({"env_workers": 2}, "env_backend: device runs its environments without env_workers; remove it"),
        ({"env_wrappers": ("gymnasium.wrappers:TimeAwareObservation",)}, "without env_wrappers; remove it"),
        ({"env_id": "fractions:Fraction"}, "needs a TensorEnv or VectorSimulator, got Fraction"),
    ],
)
def test_what_device_environments_cannot_do_is_refused(tmp_path, changes, message):
    with pytest.raises((ConfigError, ValueError, TypeError), match=message):
        run_training(config(tmp_path, **changes))


ALGORITHMS = ["dqn", "qr_dqn", "c51", "iqn", "fqf", "rainbow", "sac", "td3"]


def collecting(tmp_path: Path, algo: str, folder: str, **changes: Any) -> Any:
    """Random first steps, a collect that starts with some of them, exploration, n-step returns and priorities."""
    continuous = {"action_noise": "ornstein_uhlenbeck"} if algo in ("sac", "td3") else {}
    constant = {} if continuous else {"epsilon_start": 0.3, "epsilon_end": 0.3, "priority_beta": 1.0}
    options = {**SMALL, **continuous, **constant, "collect_steps": 8, "updates_per_collect": 2, "learning_starts": 80,
               "buffer_size": 300}  # fmt: skip
    env = "Pendulum-v1" if continuous else "CartPole-v1"
    return config(tmp_path, "dqn", folder, algo=algo, env_id=env, algo_kwargs=options, **changes)


@pytest.mark.parametrize("algo", slow_but(("dqn", "rainbow", "sac", "td3"), ALGORITHMS))
def test_a_collect_stores_what_single_steps_store(tmp_path, algo, monkeypatch):
    collected = run_training(collecting(tmp_path, algo, "one"))
    monkeypatch.setattr(CapturedCollect, "collect", lambda *_: 0)
    stepped = run_training(collecting(tmp_path, algo, "two"))
    assert weights(collected.run_dir) == weights(stepped.run_dir) != {}


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
ON_GPU = {"device": "cuda", "total_timesteps": 1024, "checkpoint_interval": 512}


@cuda
@pytest.mark.parametrize("name", ["ppo", "ppo with memory", "pqn", "pqn with images"])
def test_captured_rollouts_and_updates_resume_exactly(tmp_path, name):
    whole = run_training(config(tmp_path, name, "whole", **ON_GPU))
    half = run_training(config(tmp_path, name, "half", **{**ON_GPU, "total_timesteps": 512}))
    resumed = resume_run(half.run_dir, steps=1024)
    assert weights(whole.run_dir) == weights(resumed.run_dir) != {}


@cuda
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_captured_collects_resume_exactly_and_store_what_single_steps_store(tmp_path, algo, monkeypatch):
    whole = run_training(collecting(tmp_path, algo, "whole", **ON_GPU))
    half = run_training(collecting(tmp_path, algo, "half", **{**ON_GPU, "total_timesteps": 512}))
    resumed = resume_run(half.run_dir, steps=1024)
    assert weights(whole.run_dir) == weights(resumed.run_dir) != {}
    monkeypatch.setattr(CapturedCollect, "collect", lambda *_: 0)
    stepped = run_training(collecting(tmp_path, algo, "stepped", **ON_GPU))
    assert weights(whole.run_dir) == weights(stepped.run_dir)


@cuda
def test_a_population_on_a_gpu_repeats_itself(tmp_path):
    def trained(folder: str, **changes: Any) -> list[dict[str, bytes]]:
        runs = [collecting(tmp_path, "dqn", f"{folder}_{seed}", seed=seed, **ON_GPU, **changes) for seed in (0, 1)]
        return [weights(result.run_dir) for result in train_seeds(runs)]

    assert trained("one") == trained("two")
