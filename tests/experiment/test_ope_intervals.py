"""Intervals of fitted Q evaluation: spread of the fits, error of the behaviour's estimate, last change."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_training import TransitionDataset
from rl_training.experiment.ope.fitting import FQEFit
from rl_training.statistics import student_interval

CONTROL = 3  # number of policies; the behaviour comes after them


def episodes_of(*lengths: int) -> TransitionDataset:
    rows = sum(lengths)
    ends = torch.zeros(rows)
    ends[torch.tensor(lengths).cumsum(0) - 1] = 1
    columns = {
        "obs": torch.zeros(rows, 1), "actions": torch.zeros(rows, 1), "rewards": torch.zeros(rows),
        "next_obs": torch.zeros(rows, 1), "dones": ends, "truncated": torch.zeros(rows),
    }  # fmt: skip
    return TransitionDataset(columns)


class Fit(FQEFit):
    """A fit with these attributes, without learners."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def fit_with(errors: list[list[float]], data: TransitionDataset) -> Fit:
    def td_errors(policy: int) -> torch.Tensor:
        assert policy == CONTROL
        return torch.tensor(errors, dtype=torch.float64)

    return Fit(policies=CONTROL, td_errors=td_errors, data=data, config=SimpleNamespace(gamma=0.5))


def test_the_error_of_the_behaviour_is_the_mean_discounted_sum_of_its_td_errors():
    # Means over the two fits: 1, 2, 4 in the first episode and -8, 6 in the second.
    fit = fit_with([[0, 2, 4, -8, 5], [2, 2, 4, -8, 7]], episodes_of(3, 2))
    # Episodes: 1 + 2/2 + 4/4 = 3 and -8 + 6/2 = -5; their mean is -1.
    assert fit.behaviour_error == pytest.approx(1.0)


def test_an_interval_adds_the_error_of_the_behaviour_and_four_times_the_last_change():
    values = torch.tensor([[[9.0, 11.0], [11.0, 11.0], [12.0, 12.0]]])  # [policies, fits, episodes]
    source = SimpleNamespace(mean_over_episodes=lambda found: found.mean(-1))
    fit = Fit(finished=values, source=source, earlier_values=values - 0.25, fits=3, behaviour_error=3.0)
    estimate, interval = fit.estimate(0)
    assert estimate == 11
    bare = student_interval(11.0, 1.0, 2)  # the standard deviation of 10, 11 and 12
    assert interval is not None
    assert tuple(interval) == pytest.approx((bare.low - 3 - 4 * 0.25, bare.high + 3 + 4 * 0.25))
