"""One loss for every way to run it: compiled equals eager, and a population equals its members trained alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import CATALOGUE, Updater
from rl_training.testing import checks
from rl_training.types import Batch


def gradients(loss: Callable[..., Any], batch: Batch, phase: str, parameters: list[Tensor]) -> dict[str, Any]:
    """The terms of a phase's loss, and the gradients of their sum."""
    torch.manual_seed(1)
    found = loss(batch, phase)
    slopes = torch.autograd.grad(found.total.sum(), parameters, allow_unused=True)
    return {**found.terms, **{str(number): slope for number, slope in enumerate(slopes) if slope is not None}}


def loss_phases(updater: Updater) -> list[str]:
    return [phase for phase in updater.learner.phases(checks.UPDATES - 1) if phase != "targets"]


def compare_compiled(members: list[Any], batch: Batch, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    torch.compiler.reset()  # its limit of compilations holds for all tests together
    eager = Updater(copy.deepcopy(members))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    compiled = Updater(members, compile=True)
    for phase in loss_phases(eager):
        expected, found = (
            gradients(each.loss, batch, phase, [value for value in each.params.values() if value.requires_grad])
            for each in (eager, compiled)
        )
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=2e-5)


def test_the_compiled_loss_equals_the_eager_one(row, monkeypatch):
    derived = any(base in CATALOGUE.values() for base in row.learner.__mro__[1:])
    learner = row.build()
    # Differentiating takes the compiler as long again: here for one algorithm of each family, below for all.
    backend = "eager" if derived or row.learner.lane == "sequence" else "aot_eager"
    compare_compiled([learner], row.batch(learner), monkeypatch, backend)


@pytest.mark.slow
def test_the_differentiated_compiled_loss_equals_the_eager_one(case, monkeypatch):
    learner = case.build()
    compare_compiled([learner], case.batch(learner), monkeypatch, "aot_eager")


@pytest.mark.slow
def test_the_compiled_loss_of_a_population_equals_the_eager_one(case, monkeypatch):
    members = [case.build(seed=seed) for seed in range(2)]
    compare_compiled(members, checks.stacked(case, members), monkeypatch, "aot_eager")


def test_a_population_equals_its_members_updated_alone(case):
    checks.check_population(case)


def test_update_of_a_learner_is_one_update_of_its_updater(case):
    checks.check_update_equals_updater(case)
