"""Checks that runs with both kinds of SimBa networks pass: updates, populations, resume, compiled losses and export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from rl_training.algorithms import CATALOGUE
from rl_training.experiment.agent import load_agent
from rl_training.testing import AlgorithmCase, checks

OPTIONS = {"simba": {"weight_decay": 0.01}, "simba_v2": {}}  # of the papers
CASES = [(kind, name) for kind in OPTIONS for name, each in CATALOGUE.items() if kind in each.config_type.takes_simba]


def with_network(case: AlgorithmCase, kind: str) -> AlgorithmCase:
    network = {"kind": kind, "hidden_sizes": [8], "critic_hidden_sizes": [8, 8]}
    return replace(case, own_options={"network": network, **OPTIONS[kind]})


@pytest.fixture(params=CASES, ids="-".join)
def case(request, all_rows) -> AlgorithmCase:
    kind, name = request.param
    return with_network(all_rows[name], kind)


def slow_unless(is_fast: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if is_fast else (pytest.mark.slow,)


def test_it_learns_and_saves_its_state(case):
    checks.check_updates(case)
    checks.check_state(case)
    checks.check_targets(case)


def test_its_population_equals_its_members_updated_alone(case):
    checks.check_population(case)


@pytest.fixture(scope="module")
def finished(all_rows, tmp_path_factory) -> Callable[[str, str], Path]:
    """Trains each run once, to compare with and to export."""
    return cache(lambda kind, name: checks.train(with_network(all_rows[name], kind), tmp_path_factory.mktemp(name)))


@pytest.mark.parametrize(("kind", "name"), [pytest.param(*each, marks=slow_unless(each[1] == "sac")) for each in CASES])
def test_it_resumes_byte_for_byte(all_rows, finished, kind, name, tmp_path):
    checks.check_resume(with_network(all_rows[name], kind), tmp_path, finished(kind, name))


@pytest.mark.parametrize(("kind", "name"), [
    ("simba", "sac"), pytest.param("simba", "crossq", marks=pytest.mark.slow),
    ("simba_v2", "sac"), pytest.param("simba_v2", "td3", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_population_resumes_byte_for_byte(all_rows, kind, name, tmp_path):
    checks.check_population_resume(with_network(all_rows[name], kind), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_the_compiled_loss_equals_the_eager_one(case, members):
    checks.check_compiled(case, members=members)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_an_exported_policy_equals_its_agent_statistics_included(finished, kind, ending, tmp_path, check_export):
    check_export(load_agent(finished(kind, "sac")), tmp_path / f"policy.{ending}")
