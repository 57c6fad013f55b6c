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
from rl_training.types import Batch

UPDATES = 2  # with policy_delay = 2 they include the actor's


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every member of a population the noise that it would sample alone."""
    monkeypatch.setattr(torch, "vmap", lambda one, randomness: torch.func.vmap(one, randomness="same"))


def gradients(loss: Callable[..., Any], batch: Batch, phase: str, parameters: list[Tensor]) -> dict[str, Any]:
    """The terms of a phase's loss, and the gradients of their sum."""
    torch.manual_seed(1)
    found = loss(batch, phase)
    slopes = torch.autograd.grad(found.total.sum(), parameters, allow_unused=True)
    return {**found.terms, **{str(number): slope for number, slope in enumerate(slopes) if slope is not None}}


def loss_phases(updater: Updater) -> list[str]:
    return [phase for phase in updater.learner.phases(UPDATES - 1) if phase != "targets"]


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
    compare_compiled(members, stacked(case, members), monkeypatch, "aot_eager")


def stacked(case: Any, members: list[Any]) -> Batch:
    """A batch for each member, stacked on a leading axis."""
    batches = [case.batch(member, seed=seed) for seed, member in enumerate(members)]
    return {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.usefixtures("same_noise")
def test_a_population_equals_its_members_updated_alone(case):
    members = [case.build(seed=seed, max_grad_norm=1.0) for seed in range(3)]
    batch = stacked(case, members)
    singles = [Updater([copy.deepcopy(member)]) for member in members]
    population = Updater(members)
    for seed in range(UPDATES):
        torch.manual_seed(seed)
        together = population.update(batch).metrics
        for i, single in enumerate(singles):
            torch.manual_seed(seed)
            alone = single.update({name: column[i] for name, column in batch.items()}).metrics
            assert alone.keys() == together.keys()
            for name, value in alone.items():
                torch.testing.assert_close(together[name][i], value, atol=1e-4, rtol=1e-4)
    for i, single in enumerate(singles):
        for name, value in single.params.items():
            torch.testing.assert_close(population.params[name][i], value, atol=1e-4, rtol=0)


def test_update_of_a_learner_is_one_update_of_its_updater(case):
    learner, other = case.build(), case.build()
    batch = case.batch(learner)
    other.load_state_dict(learner.state_dict())
    torch.manual_seed(1)
    result = learner.update(batch, global_step=7)
    torch.manual_seed(1)
    Updater([other]).update(batch)
    assert result.num_gradient_steps == 1
    for mine, expected in zip(learner.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, expected)
