"""Many seeds as one population: each is a run of its own, and the whole resumes as if it had never stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from rl_training.experiment.agent import load_agent
from rl_training.experiment.assembly import assemble
from rl_training.experiment.machine import choose
from rl_training.experiment.run import resume_run
from rl_training.experiment.run_directory import RunDirectory
from rl_training.runtime.lanes import lane_class
from rl_training.testing import checks


@pytest.fixture(scope="module")
def whole(population, tmp_path_factory) -> list[Path]:
    """A population that was never stopped, to compare with."""
    return checks.train_population(population, tmp_path_factory.mktemp("whole"))


def test_a_population_resumes_byte_for_byte(population, whole, tmp_path):
    checks.check_population_resume(population, tmp_path, whole)


def test_members_differ_and_each_goes_on_alone(whole, tmp_path):
    agents = [load_agent(run).learner for run in whole]
    assert not next(agents[0].parameters()).equal(next(agents[1].parameters()))
    before = RunDirectory(whole[1]).read("result.json") or {}
    alone = resume_run(shutil.copytree(whole[1], tmp_path / "alone"), steps=before["steps"] + 10)
    assert (alone.status, alone.steps) == ("finished", before["steps"] + 10)
    assert alone.updates > before["updates"]


def test_members_begin_as_single_runs_of_their_seed_do(case, tmp_path):
    if not lane_class(case.learner).takes_population:
        pytest.skip("seeds of an on-policy, recurrent or model-based algorithm run as processes")
    chosen = checks.population_configs(case, tmp_path)
    state, members = assemble(chosen, choose(chosen[0]), 60)
    for config, member in zip(chosen, members, strict=True):
        _, (single,) = assemble([config], choose(config), 60)
        mine = dict(member.learner.named_parameters())
        assert all(value.equal(mine[name]) for name, value in single.learner.named_parameters())
        single.close()
        member.close()
    assert state.updater.members == len(checks.SEEDS)
    assert torch.equal(state.updater.params[name := next(iter(mine))][-1], mine[name])
