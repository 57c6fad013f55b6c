"""Runs with SimbaV2 networks: flat programs, and weights that keep their unit norm."""

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
from rl_training.testing import AlgorithmCase

NETWORK = {"kind": "simba_v2", "hidden_sizes": [8], "critic_hidden_sizes": [8, 8]}


def with_network(case: AlgorithmCase, **options: Any) -> AlgorithmCase:
    return replace(case, own_options={"network": NETWORK, **options})


@pytest.fixture(params=["sac", "td3", "redq", "tqc"])
def case(request, all_rows) -> AlgorithmCase:
    return with_network(all_rows[request.param])


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


def test_a_trained_agent_has_unit_norms(all_rows, tmp_path):
    config = parse_config(with_network(all_rows["sac"]).config(output_dir=str(tmp_path / "run")))
    model = load_agent(run_training(config).run_dir).learner.model
    for name, axis in unit_norm_axes(model).items():
        norms = model.get_parameter(name).detach().norm(dim=axis)
        torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-5, rtol=0)
