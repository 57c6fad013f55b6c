"""Choices by the machine: `compile: auto`, threads, denormal numbers."""

from __future__ import annotations

import shutil

import pytest
import torch

from rl_training.algorithms import CATALOGUE, SACAlgorithm
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import Choices, apply, count_updates, worth_compiling
from rl_training.experiment.timing.threads import fastest_threads, measure_threads
from rl_training.types import EnvSpec

TUNED = {"algo": "iql", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 8}}
CATCH = {"algo": "dreamer", "env_id": "Catch-v0", "algo_kwargs": {"train_ratio": 512, "batch_size": 16, "window": 64}}


def test_long_runs_of_dreamer_are_compiled_on_a_gpu(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert worth_compiling(parse_config({**CATCH, "total_timesteps": 20_000}), "cuda:0")
    assert not worth_compiling(parse_config({**CATCH, "total_timesteps": 19_996}), "cuda:0")


@pytest.mark.parametrize(
    ("values", "device"),
    [({"algo": "ppo", "env_id": "CartPole-v1"}, "cuda"), (CATCH, "cpu"), (CATCH, "mps"), ({"algo": "iql"}, "cuda")],
)
def test_rollouts_dreamer_without_cuda_and_timed_runs_are_not_compiled_unseen(values, device):
    assert not worth_compiling(parse_config({**values, "total_timesteps": 10_000_000}), device)


def test_runs_without_a_compiler_stay_eager(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not worth_compiling(parse_config({**CATCH, "total_timesteps": 10_000_000}), "cuda")


@pytest.mark.parametrize(
    ("values", "updates"),
    [
        ({"algo": "iql"}, 1000),
        ({"algo": "iql", "max_updates": 70}, 70),
        ({**TUNED, "online_steps": 100, "updates_per_step": 3}, 1300),
        ({"algo": "sac", "env_id": "Pendulum-v1", "num_envs": 4}, 250),
    ],
)
def test_the_updates_of_a_run_are_counted_beforehand(values, updates):
    assert count_updates(parse_config({**values, "total_timesteps": 1000})) == updates


BOX = EnvSpec((3,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


@pytest.fixture
def one_thread():
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("seconds", "usable", "chosen"),
    [
        ({1: 1.0, 2: 0.6, 4: 0.4}, 8, 4),
        ({1: 1.0, 2: 0.6, 4: 0.55}, 8, 2),  # the second doubling gains too little
        ({1: 1.0, 2: 0.9, 4: 0.3}, 8, 1),
        ({1: 1.0, 2: 0.6, 4: 0.3}, 2, 2),
        ({1: 1.0}, 1, 1),
    ],
)
def test_more_threads_are_used_if_each_doubling_gains_a_fifth(seconds, usable, chosen, monkeypatch, one_thread):
    now, threads = [0.0], [1]
    monkeypatch.setattr(torch, "set_num_threads", lambda count: threads.__setitem__(0, count))

    def update():
        now[0] += seconds[threads[0]] / 100

    assert fastest_threads(update, usable, clock=lambda: now[0]) == chosen
    assert threads == [1]


@pytest.mark.parametrize(
    ("width", "steps", "limit", "measured"),
    [(256, 20_000, None, True), (256, 2_000, None, False), (16, 20_000, None, False), (256, 20_000, "1", False)],
)
def test_threads_are_measured_for_long_runs_of_larger_networks(width, steps, limit, measured, monkeypatch, one_thread):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    monkeypatch.setattr("rl_training.experiment.timing.threads.fastest_threads", lambda update, usable: update() and 3)
    config = parse_config({"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": steps})
    learner = SACAlgorithm.build(BOX, hidden_sizes=(width, width), batch_size=4)
    before, noise = [each.clone() for each in learner.parameters()], torch.get_rng_state()
    assert measure_threads(config, learner, BOX) == (3 if measured else 1)
    assert all(torch.equal(each, old) for each, old in zip(learner.parameters(), before, strict=True))
    assert torch.equal(torch.get_rng_state(), noise)


@pytest.mark.parametrize("name", [name for name, each in CATALOGUE.items() if each.lane in ("offline", "replay")])
def test_updates_of_every_algorithm_can_be_timed(name, monkeypatch, one_thread):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("rl_training.experiment.timing.threads.MEASURED_SIZE", 0)
    monkeypatch.setattr("rl_training.experiment.timing.threads.fastest_threads", lambda update, usable: update() and 3)
    kind = CATALOGUE[name]
    spec = BOX if "box" in kind.action_kinds else EnvSpec((3,), "discrete", 4)
    config = parse_config({"algo": name, "env_id": "Pendulum-v1", "total_timesteps": 1_000_000})
    assert measure_threads(config, kind.build(spec, hidden_sizes=(8, 8), batch_size=4), spec) == 3


def test_training_flushes_denormal_numbers():
    apply(Choices("cpu", 1, False))
    assert (torch.full((4,), 1e-38) / 100).tolist() == [0] * 4
