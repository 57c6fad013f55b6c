"""`compile: auto` depends on the number of updates, the lane and the device."""

from __future__ import annotations

import shutil

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import worth_compiling

CATCH = {"algo": "dreamer", "env_id": "Catch-v0", "algo_kwargs": {"train_ratio": 512, "batch_size": 16, "window": 64}}


@pytest.mark.parametrize(
    ("values", "steps", "device"),
    [
        ({"algo": "iql"}, 50_000, "cpu"),
        ({"algo": "iql"}, 50_000, "cuda:0"),
        ({"algo": "sac", "env_id": "Pendulum-v1", "num_envs": 4}, 200_000, "cpu"),
        (CATCH, 20_000, "cuda"),
    ],
)
def test_long_runs_are_compiled(values, steps, device, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert worth_compiling(parse_config({**values, "total_timesteps": steps}), device)
    assert not worth_compiling(parse_config({**values, "total_timesteps": steps - 4}), device)


@pytest.mark.parametrize(
    ("values", "device"), [({"algo": "ppo", "env_id": "CartPole-v1"}, "cuda"), (CATCH, "cpu"), (CATCH, "mps")]
)
def test_rollouts_and_dreamer_without_cuda_stay_eager(values, device):
    assert not worth_compiling(parse_config({**values, "total_timesteps": 10_000_000}), device)


def test_runs_without_a_compiler_stay_eager(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not worth_compiling(parse_config({"algo": "iql", "total_timesteps": 10_000_000}), "cpu")
