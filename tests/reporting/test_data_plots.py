"""Plots of datasets."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rl_training.reporting.data_plots import save_data_plot


def logged(rows: int, *, actions: np.ndarray, obs: np.ndarray | None = None) -> dict[str, np.ndarray]:
    return {
        "obs": np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32) if obs is None else obs,
        "actions": actions,
        "rewards": np.arange(rows, dtype=np.float32),
        "dones": np.arange(rows) % 5 == 4,
        "truncated": np.zeros(rows, bool),
    }


KINDS = {
    "several dimensions": logged(20, actions=np.random.default_rng(1).uniform(-1, 1, (20, 2))),
    "more dimensions than colours": logged(20, actions=np.zeros((20, 9), np.float32)),
    "discrete": logged(20, actions=np.arange(20) % 3),
    "pixels": logged(20, actions=np.arange(20) % 3, obs=np.full((20, 8, 8, 1), 7, np.uint8)),
    "a single row": {name: column[:1] for name, column in logged(20, actions=np.arange(20)).items()},
    "nothing finite": logged(20, actions=np.full((20, 1), np.nan), obs=np.full((20, 3), np.inf)),
}


@pytest.mark.parametrize("columns", KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_data_can_be_plotted(tmp_path, columns):
    pytest.importorskip("matplotlib")
    plot = save_data_plot(columns, tmp_path / "data.png", title="logs")
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "start"), [(".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_plots_can_be_vector_graphics(tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    assert save_data_plot(KINDS["discrete"], tmp_path / f"data{suffix}", title="logs").read_bytes().startswith(start)


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'a plot needs matplotlib: pip install "rl-training\[plot\]"'):
        save_data_plot(KINDS["discrete"], tmp_path / "data.png", title="logs")
