"""Where the time goes: each part without those inside it, all of them together the whole, and the run unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks import profile
from rl_training.runtime.callbacks.profile import Profile

ACTING = ["env", "act", "collect", "sample", "update", "evaluate", "log", "checkpoint", "rest"]


class Clock:
    """Stands still until it is told to go on."""

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


def test_a_part_is_charged_for_its_own_time_alone(monkeypatch):
    clock, watch = Clock(), Profile()
    monkeypatch.setattr(profile, "time", clock)
    work = Work(clock)
    watch._time(work, "outer", "collect")
    watch._time(work, "inner", "env")
    work.outer()
    clock.now += 5
    work.inner()
    assert watch.told() == {"env": 4.0, "collect": 4.0, "rest": 5.0}


def test_the_parts_of_a_run_are_all_of_its_time(tmp_path):
    watch = Profile()
    result = run_training(config(tmp_path), callbacks=[watch])
    assert list(watch.told()) == ACTING
    assert all(seconds >= 0 for seconds in watch.told().values())
    assert sum(watch.told().values()) == pytest.approx(result.seconds, rel=0.2)


def test_a_run_from_data_has_no_environment_to_wait_for(tmp_path):
    watch = Profile()
    changes: dict[str, Any] = {
        "algo": "bc",
        "dataset": {"kind": "random", "rows": 50},
        "algo_kwargs": {"hidden_sizes": [8]},
    }
    run_training(config(tmp_path, **changes), callbacks=[watch])
    assert list(watch.told()) == ACTING[2:]


def test_a_population_is_watched_as_one(tmp_path):
    watch = Profile()
    run_population([config(tmp_path / str(seed), seed) for seed in range(2)], callbacks=[watch])
    assert list(watch.told()) == ACTING


def test_a_run_that_is_watched_is_the_same_run(tmp_path):
    plain = run_training(config(tmp_path / "plain"))
    watched = run_training(config(tmp_path / "watched"), callbacks=[Profile()])
    assert compare_runs(plain.run_dir, watched.run_dir) == []
