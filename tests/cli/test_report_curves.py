"""The groups and curves of `report`: labels, the middle line, thinning, and values that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.reporting.report.curves import curve_data, middle, thin
from rl_training.reporting.report.gathering import gather
from rl_training.reporting.report.labels import telling_keys
from rl_training.statistics import bootstrap_interval, interquartile_mean

pytest.importorskip("bokeh")


def test_labels_have_the_fewest_options_that_separate_the_groups():
    assert telling_keys([{"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 1, "c": 2}, {"a": 1, "b": 3, "c": 3}]) == ["c"]
    assert telling_keys([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 2, "b": 2}]) == ["a", "b"]
    assert telling_keys([{}]) == []


def test_the_line_is_the_interquartile_mean_of_the_seeds_that_have_reached_a_step():
    curves = [
        np.array([[0, 1.0], [10, 3.0]]),
        np.array([[0, 2.0], [10, 5.0], [20, 9.0]]),
        np.array([[5, 4.0], [10, 7.0]]),
    ]
    line = middle(curves)
    assert line["x"] == [0, 5, 10, 20]
    assert line["n"] == [2, 3, 3, 1]
    assert line["y"] == pytest.approx([1.5, interquartile_mean([2, 3.5, 4]), 5.0, 9.0], rel=1e-5)
    assert (line["low"][2], line["high"][2]) == pytest.approx(bootstrap_interval([3, 5, 7], resamples=1000), rel=1e-5)


def test_long_curves_are_thinned_and_keep_their_end():
    curve = np.stack([np.arange(10_001.0), np.arange(10_001.0)], 1)
    thinned = thin(curve, 100)
    assert thinned.shape == (100, 2)
    assert thinned[-1].tolist() == [10_000, 10_000]
    assert np.allclose(thinned[:, 0], thinned[:, 1])


def test_values_that_are_no_numbers_are_left_out_of_curves(tmp_path, write_run):
    run = write_run(tmp_path / "run", 5, float("nan"), 7)
    (panel,) = curve_data(gather([str(run)]))
    assert panel["groups"][0]["evaluation"]["seeds"][0]["y"] == [5, 7]
