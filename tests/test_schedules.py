from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from rl_training.schedules import Schedule


def test_linear_schedule_is_half_way_at_half_its_fraction():
    schedule = Schedule(start=1.0, end=0.2, fraction=0.5)
    assert schedule.at(0.25, default=9.0) == pytest.approx(0.6)  # (1.0 + 0.2) / 2


def test_cosine_schedule_starts_flat():
    schedule = Schedule(kind="cosine", start=2.0, end=0.0)
    assert schedule.at(0.25, default=9.0) == pytest.approx(1 + math.sqrt(0.5))  # 2 * (1 + cos(pi / 4)) / 2
    assert schedule.at(0.5, default=9.0) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_both_ends_are_met_exactly_and_the_last_one_stays(kind):
    schedule = Schedule(kind=kind, start=1.0, end=0.05, fraction=0.3)
    assert [schedule.at(progress, default=9.0) for progress in (0.0, 0.3, 1.0)] == [1.0, 0.05, 0.05]


def test_start_is_the_configured_value_unless_given():
    assert Schedule().at(0.5, default=3e-4) == pytest.approx(1.5e-4)


def test_constant_schedule_stays_at_its_start():
    assert Schedule(kind="constant", start=0.1).at(0.7, default=9.0) == 0.1


def test_a_fraction_of_zero_means_the_end_from_the_beginning():
    assert Schedule(start=1.0, end=0.1, fraction=0.0).at(0.0, default=9.0) == 0.1


@pytest.mark.parametrize("wrong", [{"fraction": 1.5}, {"kind": "square"}, {"start": math.nan}, {"stop": 0.1}])
def test_wrong_schedules_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Schedule(**wrong)
