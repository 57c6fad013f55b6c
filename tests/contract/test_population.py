"""Many seeds as one population: each is a run of its own, and the whole resumes as if it had never stopped."""

from __future__ import annotations

import shutil

import pytest
import torch

from rl_training.experiment.agent import load_agent
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.result import TrainResult
from rl_training.experiment.run import resume_run, run_population
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import lane_class

SEEDS = (0, 3, 5)


@pytest.fixture(scope="module", autouse=True)
def _only_lanes_that_know_members(case):
    if not lane_class(case.learner).takes_population:
        pytest.skip("seeds of an on-policy, recurrent or model-based algorithm run as processes")


def configs(case, folder):
    return [parse_config(case.config(seed=seed, output_dir=str(folder / f"seed_{seed}"))) for seed in SEEDS]


@pytest.fixture(scope="module")
def whole(case, tmp_path_factory) -> list[TrainResult]:
    """A population that was never stopped, to compare with."""
    return run_population(configs(case, tmp_path_factory.mktemp("whole")))


def test_a_population_resumes_byte_for_byte(case, whole, tmp_path):
    halved = run_population(configs(case, tmp_path), callbacks=[StopAtStep(case.stops[1])])
    assert {(result.status, result.steps) for result in halved} == {("stopped", case.stops[1])}
    resumed = run_population(configs(case, tmp_path))
    assert [compare_runs(a.run_dir, b.run_dir) for a, b in zip(whole, resumed, strict=True)] == [[], [], []]


def test_members_differ_and_each_goes_on_alone(whole, tmp_path):
    agents = [load_agent(result.run_dir).learner for result in whole]
    assert not next(agents[0].parameters()).equal(next(agents[1].parameters()))
    before = whole[1]
    alone = resume_run(shutil.copytree(before.run_dir, tmp_path / "alone"), steps=before.steps + 30)
    assert (alone.status, alone.steps) == ("finished", before.steps + 30)
    assert alone.updates > before.updates


def test_members_begin_as_single_runs_of_their_seed_do(case, tmp_path):
    chosen = configs(case, tmp_path)
    state, members = assemble(chosen, choose(chosen[0]), 60)
    for config, member in zip(chosen, members, strict=True):
        _, (single,) = assemble([config], choose(config), 60)
        mine = dict(member.learner.named_parameters())
        assert all(value.equal(mine[name]) for name, value in single.learner.named_parameters())
        single.close()
        member.close()
    assert state.updater.members == len(SEEDS)
    assert torch.equal(state.updater.params[name := next(iter(mine))][-1], mine[name])
