"""The figure of a world model's frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training.experiment.dreams import Dreams
from rl_training.reporting.dream_plots import save_dreams


def figure_of(monkeypatch, channels: int, episodes: int = 1):
    """Two episodes of three frames, the first of them context: dark except for the last imagined frame."""
    figures = []
    figure_class = pytest.importorskip("matplotlib.figure").Figure
    monkeypatch.setattr(figure_class, "savefig", lambda self, *_, **__: figures.append(self))
    dark = torch.zeros(2, 3, channels, 32, 32)
    bright = dark.clone()
    bright[:, 2, -1] = 1.0
    save_dreams(Dreams(dark, dark, bright, 1, 0.25, 0.0, 0.0, 0.125), Path("unwritten.png"), episodes=episodes)
    return figures[0]


def test_rows_and_steps_are_labelled(monkeypatch):
    figure = figure_of(monkeypatch, channels=1, episodes=5)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["episode 1", "episode 2"]
    for axes in figure.axes:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["observed", "reconstructed", "imagined"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2"]
    assert "reconstruction 0.125, imagination 0.25" in figure.get_suptitle()
    assert "sees the first 1 and imagines" in figure.get_supxlabel()


def test_frames_lie_where_their_labels_are_and_a_line_ends_the_context(monkeypatch):
    (axes,) = figure_of(monkeypatch, channels=1).axes
    image = np.asarray(axes.get_images()[0].get_array())
    assert image.shape == (3 * 34 - 2, 3 * 34 - 2, 3)  # frames of 32 pixels, 2 between them
    row, column = int(axes.get_yticks()[2]), int(axes.get_xticks()[2])
    assert image[row, column].tolist() == [1, 1, 1]
    assert image[row, int(axes.get_xticks()[1])].tolist() == [0, 0, 0]
    (line,) = axes.get_lines()
    assert 31 < line.get_xdata()[0] < 34


@pytest.mark.parametrize(("channels", "colour"), [(3, [0, 0, 1]), (4, [1, 1, 1])])
def test_colours_are_shown_and_of_a_stack_its_newest_frame(monkeypatch, channels, colour):
    (axes,) = figure_of(monkeypatch, channels=channels).axes
    assert np.asarray(axes.get_images()[0].get_array())[84, 84].tolist() == colour
