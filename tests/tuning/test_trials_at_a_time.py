"""How many trials of a study train at a time."""

from __future__ import annotations

import pytest

from rl_training.cli.tune import trial_options
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.tuning.plan import parse_plan

pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ExecutorOptions(), {"jobs": None, "cpus": 3}),
        (ExecutorOptions(jobs=7), {"jobs": 7, "cpus": None}),
        (ExecutorOptions(cpus=2), {"jobs": None, "cpus": 2}),
        (ExecutorOptions("ray"), {"jobs": 10, "cpus": None}),
        (ExecutorOptions("slurm", jobs=20), {"jobs": 20, "cpus": None}),
    ],
)
def test_the_trials_at_a_time_are_limited_by_cores_and_by_the_scores_they_learn_from(monkeypatch, options, expected):
    monkeypatch.setattr("rl_training.experiment.executors.capacity.cores", lambda: 4)
    config = {"algo": "ppo", "env_id": "CartPole-v1"}
    plan = parse_plan({"config": config, "search": {"gamma": "0.9:1"}, "seeds": [0, 1, 2]})
    found = trial_options(options, plan)
    assert {"jobs": found.jobs, "cpus": found.cpus} == expected


def test_seeds_of_a_population_share_a_core():
    config = {"algo": "sac", "env_id": "Pendulum-v1"}
    plan = parse_plan({"config": config, "search": {"gamma": "0.9:1"}, "seeds": [0, 1, 2]})
    assert trial_options(ExecutorOptions(), plan).cpus == 1
