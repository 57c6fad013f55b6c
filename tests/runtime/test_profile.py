"""Profiles: exclusive times of all parts, which sum to the whole, without changing the run."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks import profile
from rl_training.runtime.callbacks.profile import Profile

ACTING = ["start", "env", "act", "collect", "sample", "update", "evaluate", "log", "checkpoint", "rest"]


class Clock:
    """Advances only when `now` is changed."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Work:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def outer(self) -> None:
        self.clock.now += 1
        self.inner()
        self.clock.now += 3

    def inner(self) -> None:
        self.clock.now += 2


def config(folder: Any, seed: int = 0, **changes: Any) -> TrainConfig:
    small = {"batch_size": 16, "hidden_sizes": [8], "learning_starts": 20}
    run = {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 80, "eval_episodes": 1, "algo_kwargs": small}
    return parse_config({**run, "seed": seed, "output_dir": str(folder), **changes})


def test_the_time_of_a_part_excludes_nested_parts(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(profile, "time", clock)
    watch = Profile()
    work = Work(clock)
    watch._time(work, "outer", "collect")
    watch._time(work, "inner", "env")
    work.outer()
    clock.now += 5
    work.inner()
    assert watch.summary() == {"start": 5.0, "env": 4.0, "collect": 4.0}


def test_the_parts_sum_to_the_time_of_the_run(tmp_path):
    before = time.perf_counter()
    watch = Profile()
    result = run_training(config(tmp_path), callbacks=[watch])
    seconds, parts = time.perf_counter() - before, watch.summary()
    assert list(parts) == ACTING
    assert all(each >= 0 for each in parts.values())
    assert sum(parts.values()) == pytest.approx(seconds, rel=0.1)
    assert sum(parts.values()) - parts["start"] == pytest.approx(result.seconds, rel=0.2)


def test_an_offline_run_has_no_environment_time(tmp_path):
    watch = Profile()
    changes: dict[str, Any] = {
        "algo": "bc",
        "dataset": {"kind": "random", "rows": 50},
        "algo_kwargs": {"hidden_sizes": [8]},
    }
    run_training(config(tmp_path, **changes), callbacks=[watch])
    assert list(watch.summary()) == ["start", *ACTING[3:]]


def test_a_population_has_one_profile(tmp_path):
    watch = Profile()
    run_population([config(tmp_path / str(seed), seed) for seed in range(2)], callbacks=[watch])
    assert list(watch.summary()) == ACTING


def test_a_profile_does_not_change_the_run(tmp_path):
    plain = run_training(config(tmp_path / "plain"))
    profiled = run_training(config(tmp_path / "profiled"), callbacks=[Profile()])
    assert compare_runs(plain.run_dir, profiled.run_dir) == []
