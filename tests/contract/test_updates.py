"""One loss for every way to run it: compiled equals eager, and a population equals its members trained alone."""

from __future__ import annotations

import pytest

from rl_training.testing import checks


def test_the_compiled_loss_equals_the_eager_one(compiled):
    # Differentiating takes the compiler as long again: here for a few algorithms, in the next test for all.
    differentiated = compiled.learner.name in ("iql", "dqn", "sac", "ppo")
    checks.check_compiled(compiled, "aot_eager" if differentiated else "eager")


@pytest.mark.slow
def test_the_differentiated_compiled_loss_equals_the_eager_one(case):
    checks.check_compiled(case, "aot_eager")


@pytest.mark.slow
def test_the_compiled_loss_of_a_population_equals_the_eager_one(case):
    checks.check_compiled(case, "aot_eager", members=2)


def test_a_population_equals_its_members_updated_alone(case):
    checks.check_population(case)


def test_update_of_a_learner_is_one_update_of_its_updater(case):
    checks.check_update_equals_updater(case)
