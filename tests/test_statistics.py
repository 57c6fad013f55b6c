"""What scores over seeds say, on numbers small enough for paper."""

import numpy as np
import pytest

from rl_training.statistics import (
    Interval,
    bootstrap_band,
    bootstrap_interval,
    interquartile_mean,
    probability_of_improvement,
    student_interval,
)


def test_interquartile_mean_of_five_leaves_out_the_smallest_and_the_largest():
    assert interquartile_mean([1000, 2, 3, 4, -1000]) == pytest.approx((2 + 3 + 4) / 3)


def test_interquartile_mean_cuts_whole_scores_only():
    assert interquartile_mean([0, 1, 5]) == 2.0  # a quarter of 3 is less than one score
    assert interquartile_mean([0, 1, 2, 3, 4, 5, 6, 100]) == 3.5  # of 8 two go at each end: (2 + 3 + 4 + 5) / 4


def test_interquartile_mean_is_over_all_tasks_together():
    assert interquartile_mean([[0, 10], [20, 900]]) == 15.0  # (10 + 20) / 2


def test_bootstrap_interval_has_the_quantiles_of_the_resampled_means():
    # Means of three draws from 0, 0, 3: 0 with probability 8/27, 1 with 12/27, 2 with 6/27, 3 with 1/27,
    # so the 5 % quantile is 0 and the 95 % quantile is 2.
    assert bootstrap_interval([0, 0, 3], np.mean, confidence=0.9) == (0.0, 2.0)
    # The 30 % and the 70 % quantiles are both 1.
    assert bootstrap_interval([0, 0, 3], np.mean, confidence=0.4) == (1.0, 1.0)


def test_bootstrap_interval_draws_seeds_within_their_task():
    # Drawn across tasks, the mean would be anything from 0 to 10.
    assert bootstrap_interval([[0, 0], [10, 10]], np.mean, resamples=100) == (5.0, 5.0)


def test_bootstrap_interval_resamples_each_task_by_itself():
    # The mean is 5 + (a + b) / 2 with a and b as above: a + b is 0 with probability 64/729, 1 with 192/729, 2 with
    # 240/729 and 3 with 160/729. So the 30 % quantile has a + b = 1, and the 70 % quantile 3. With the same seeds for
    # both tasks, both quantiles would have 2.
    assert bootstrap_interval([[0, 0, 3], [10, 10, 13]], np.mean, confidence=0.4) == (5.5, 6.5)


def test_bootstrap_interval_repeats_for_a_seed_and_holds_the_statistic():
    scores = [-150.0, -160.0, -140.0, -155.0, -300.0]
    interval = bootstrap_interval(scores, resamples=500)
    assert interval == bootstrap_interval(scores, resamples=500)
    assert interval.low < interquartile_mean(scores) < interval.high


def test_one_seed_has_an_interval_of_one_point():
    assert bootstrap_interval([7.0]) == (7.0, 7.0)


def test_probability_of_improvement_counts_pairs_and_halves_ties():
    # Of the six pairs 3 beats 1 and 2, 2 beats 1 and ties with 2, 0 beats none: (3 + 1/2) / 6.
    assert probability_of_improvement([3, 2, 0], [1, 2]) == pytest.approx(3.5 / 6)
    assert probability_of_improvement([1, 2], [3, 2, 0]) == pytest.approx(2.5 / 6)


def test_probability_of_improvement_compares_within_tasks():
    # Always on the first task, half the time on the second: (1 + 1/2) / 2. All pairs together would give 10 / 16.
    assert probability_of_improvement([[2, 2], [101, 101]], [[1, 1], [50, 102]]) == 0.75


@pytest.mark.parametrize("scores", [[], [1.0, float("nan")], 3.0])
def test_scores_that_say_nothing_are_refused(scores):
    with pytest.raises(ValueError, match="scores must"):
        interquartile_mean(scores)


def test_tasks_must_match():
    with pytest.raises(ValueError, match="the same tasks"):
        probability_of_improvement([[1, 2]], [[1, 2], [3, 4]])


def test_confidence_is_a_share():
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\), got 95"):
        bootstrap_interval([1, 2], confidence=95)


@pytest.mark.parametrize(("freedom", "t"), [(2, 4.303), (4, 2.776), (9, 2.262), (19, 2.093), (1000, 1.962)])
def test_students_interval_is_as_wide_as_the_tables_say(freedom, t):
    interval = student_interval(10.0, 0.5, freedom)
    assert ((10 - interval.low) / 0.5, (interval.high - 10) / 0.5) == pytest.approx((t, t), rel=0.01)


@pytest.mark.parametrize(("freedom", "t"), [(10, 2.2281389), (19, 2.0930241)])
def test_students_interval_is_exact_to_five_digits_from_ten_degrees_of_freedom(freedom, t):
    assert student_interval(0.0, 1.0, freedom).high == pytest.approx(t, rel=5e-6)


def test_students_interval_needs_two_degrees_of_freedom():
    with pytest.raises(ValueError, match="freedom must be at least 2, got 1"):
        student_interval(0.0, 1.0, 1)


def test_a_band_has_the_interquartile_mean_and_the_interval_of_each_step():
    scores = np.random.default_rng(0).normal(size=(7, 5))
    band = bootstrap_band(scores, resamples=200, block=2000)  # two steps at a time
    for row, *found in zip(scores, *band, strict=True):
        one_by_one = bootstrap_interval(row, lambda each: interquartile_mean(each), resamples=200)
        assert found == [interquartile_mean(row), *one_by_one]


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 9, 33])
def test_the_interval_of_the_interquartile_mean_does_not_depend_on_how_it_is_computed(seeds):
    scores = np.random.default_rng(seeds).normal(size=seeds)
    one_by_one = bootstrap_interval(scores, lambda each: interquartile_mean(each), resamples=500)
    assert bootstrap_interval(scores, resamples=500) == one_by_one


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [((0, 2), (1, 3), True), ((0, 2), (2, 3), True), ((0, 3), (1, 2), True), ((0, 1), (2, 3), False)],
)
def test_intervals_overlap_if_they_share_a_number(one, other, overlap):
    assert Interval(*one).overlaps(Interval(*other)) is overlap
    assert Interval(*other).overlaps(Interval(*one)) is overlap
