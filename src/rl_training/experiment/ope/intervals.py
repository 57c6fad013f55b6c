"""Intervals of fitted Q evaluation."""

from __future__ import annotations

from rl_training.data import TransitionDataset
from rl_training.experiment.ope.fitting import FQEFit
from rl_training.experiment.ope.importance import Episodes, Estimate
from rl_training.statistics import Interval, student_interval

# Fits err in the same direction together, which no bootstrap shows. The width was chosen with
# benchmarks/ope_calibration.py, on other checkpoints than those of the stored results.
UNFINISHED = 4.0  # of the change of the estimate in the last fifth of the updates


def behaviour_error(fit: FQEFit, data: TransitionDataset) -> float:
    """Error of the behaviour's estimate, |mean_i sum_t D_it delta_it|, averaged over the fits.

    delta is the TD error of the behaviour's values and D the discount before step t. The sum is the return of episode i
    minus its fitted value; after a truncated episode the return continues with the fitted value.
    """
    errors = fit.td_errors(data, fit.policies).mean(0)
    episodes = Episodes(data, fit.config.gamma)
    return abs(float((episodes.discounts * episodes.grid(errors)).sum(1).mean()))


def fitted_estimate(fit: FQEFit, policy: int, error: float) -> Estimate:
    """Mean over fits and first states, with its 95% interval; `error` is that of the behaviour's estimate.

    half width = t * std over fits and bootstraps + error + UNFINISHED * change in the last fifth of the updates
    """
    values = fit.values()[policy]
    estimate = float(values.mean())
    spread = float(fit.source.mean_over_episodes(values).std())
    change = abs(estimate - float(fit.earlier_values[policy].mean()))
    interval = student_interval(estimate, spread, fit.fits - 1)
    return Estimate(estimate, wider(interval, error + UNFINISHED * change))


def wider(interval: Interval, more: float) -> Interval:
    return Interval(interval.low - more, interval.high + more)
