"""Runs with SimBaV2 networks: weights keep their unit norm in populations, flat programs, resumed and exported runs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from rl_training.algorithms import Updater
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training
from rl_training.models.unit_norm import unit_norm_axes
from rl_training.testing import AlgorithmCase, checks

NETWORK = {"kind": "simba_v2", "hidden_sizes": [8], "critic_hidden_sizes": [8, 8]}
OTHERS = ("td3", "redq", "tqc")


def with_network(case: AlgorithmCase, **options: Any) -> AlgorithmCase:
    return replace(case, own_options={"network": NETWORK, **options})


@pytest.fixture(params=["sac", *OTHERS])
def case(request, all_rows) -> AlgorithmCase:
    return with_network(all_rows[request.param])


def test_it_learns_and_saves_its_state(case):
    checks.check_updates(case)
    checks.check_state(case)
    checks.check_targets(case)


def test_its_population_equals_its_members_updated_alone(case):
    checks.check_population(case)


@pytest.mark.parametrize("name", ["sac", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_it_resumes_byte_for_byte(all_rows, name, tmp_path):
    checks.check_resume(with_network(all_rows[name]), tmp_path)


@pytest.mark.parametrize("name", ["sac", pytest.param("td3", marks=pytest.mark.slow)])
def test_a_population_resumes_byte_for_byte(all_rows, name, tmp_path):
    checks.check_population_resume(with_network(all_rows[name]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_the_compiled_loss_equals_the_eager_one(case, members):
    checks.check_compiled(case, members=members)


def test_flat_programs_give_the_same_bits(case):
    learner = case.build()
    batch, flat, plain = case.batch(learner), Updater([learner]), Updater([copy.deepcopy(learner)])
    assert flat.flat is not None
    flat.flat.after, plain.flat = 0.0, None
    for update in range(5):
        for updater in (flat, plain):
            torch.manual_seed(update)
            updater.update(batch)
    assert flat.flat.programs
    assert None not in flat.flat.programs.values()
    assert all(value.equal(plain.params[name]) for name, value in flat.params.items())


@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_trained_agent_has_unit_norms_and_is_exported(all_rows, ending, tmp_path, check_export):
    config = parse_config(with_network(all_rows["sac"]).config(output_dir=str(tmp_path / "run")))
    agent = load_agent(run_training(config).run_dir)
    for name, axis in unit_norm_axes(agent.learner.model).items():
        norms = agent.learner.model.get_parameter(name).detach().norm(dim=axis)
        torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-5, rtol=0)
    check_export(agent, tmp_path / f"policy.{ending}")
