"""Which runs are ranked, whether they are comparable, and which intervals overlap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.agent import Agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.ope.discounts import with_time
from rl_training.experiment.ope.runs import overlapping, require_comparable, runs_below
from rl_training.statistics import Interval
from rl_training.types import EnvSpec

SPEC = EnvSpec((3,), "box", 1, "float32", (1,), (-2.0,), (2.0,))
RUNS = [Path("a"), Path("b")]


def agent(spec: EnvSpec = SPEC, **config: Any) -> Agent:
    learner: Any = None
    return Agent(learner, spec, parse_config({"algo": "bc", "dataset": "logs.npz", **config}), Path("checkpoint"))


def test_intervals_overlap_if_they_share_a_point():
    assert overlapping([Interval(4, 6), Interval(1, 4), Interval(0, 3)]) == [[1], [0, 2], [1]]
    assert overlapping([Interval(4, 6), Interval(1, 3)]) == [[], []]


def test_a_folder_stands_for_its_runs_in_the_order_of_their_seeds(tmp_path):
    for name in ("bench/iql/seed_10", "bench/iql/seed_2", "bench/bc/seed_0"):
        (tmp_path / name / "checkpoints" / "step_000000004").mkdir(parents=True)
    run = tmp_path / "bench" / "iql" / "seed_2"
    assert [str(each.relative_to(tmp_path)) for each in runs_below(tmp_path)] == [
        "bench/bc/seed_0", "bench/iql/seed_2", "bench/iql/seed_10",
    ]  # fmt: skip
    assert runs_below(run) == [run]
    checkpoint = run / "checkpoints" / "step_000000004"
    assert runs_below(checkpoint) == [checkpoint]


def test_runs_with_equal_spaces_and_options_are_comparable():
    require_comparable(RUNS, [agent(), agent(rewards={"scale": 2.0})], {})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            agent(replace(SPEC, action_high=(3.0,))),
            r"action_high is \(2.0,\) in a and \(3.0,\) in b; rank runs with equal",
        ),
        (agent(replace(SPEC, obs_shape=(4,))), r"obs_shape is \(3,\) in a and \(4,\) in b"),
        (agent(replace(SPEC, obs_names=("z", "y"))), r"obs_names is \('x', 'y'\) in a and \('z', 'y'\) in b"),
        (agent(dataset_columns={"obs": "x"}), "a and b read their data with different --columns; give --columns"),
        (agent(action_range=[-1, 1]), "a and b read their data with different --action-range"),
    ],
)
def test_runs_that_are_not_comparable_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        require_comparable(RUNS, [agent(replace(SPEC, obs_names=("x", "y"))), other], {})


def test_the_time_of_discounts_is_that_of_the_runs_that_have_one():
    plain = agent()
    hourly, daily = (
        agent(algo="iql", algo_kwargs={"discount_time": "time", "time_unit": unit}) for unit in (3600.0, 86_400.0)
    )
    assert with_time(RUNS, [plain, plain]) is plain
    assert with_time(RUNS, [plain, hourly]) is hourly
    with pytest.raises(ValueError, match="a and b differ in discount_time or time_unit"):
        with_time(RUNS, [hourly, daily])


def test_columns_that_are_given_hold_for_all_runs():
    reading = {"dataset_columns": {"obs": "x"}, "action_range": (-1, 1)}
    require_comparable(RUNS, [agent(), agent(dataset_columns={"obs": "y"}, action_range=[-3, 3])], reading)


def test_a_run_is_ranked_once(tmp_path):
    with pytest.raises(ValueError, match="is given twice; name each run once"):
        require_comparable([tmp_path, tmp_path / "."], [agent(), agent()], {})
