"""The fast update of CORL's CQL that `benchmarks/peer_corl.py` trains with."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CORL = os.environ.get("RL_TRAINING_CORL", "")
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("peer_corl_update")


def test_stacked_networks_compute_what_each_computes(fused):
    networks = [nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in "ab"]
    inputs = torch.randn(2, 5, 3)
    expected = torch.stack([network(each) for network, each in zip(networks, inputs, strict=True)])
    torch.testing.assert_close(fused.forward(fused.stacked(networks, "cpu"), inputs), expected)


def test_samples_are_those_of_a_squashed_normal_distribution(fused):
    mean, log_std, noise = torch.randn(3, 4, 5, 2).unbind(0)
    actions, log_prob = fused.Policy(mean, log_std).sample(noise)
    reference = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1))
    raw = mean + log_std.exp() * noise
    torch.testing.assert_close(actions, raw.tanh())
    torch.testing.assert_close(log_prob, reference.log_prob(reference.transforms[0](raw)).sum(-1))


@pytest.mark.skipif(not CORL, reason="set RL_TRAINING_CORL (clone of CORL)")
def test_updates_equal_those_of_the_class_of_corl(fused, tmp_path, monkeypatch, capsys):
    random, rows = np.random.default_rng(0), 500
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for name, size in {"observations": 5, "next_observations": 5, "actions": 2}.items():
            file[name] = random.uniform(-0.9, 0.9, (rows, size)).astype(np.float32)
        file["rewards"], file["terminals"] = random.normal(size=rows).astype(np.float32), random.random(rows) < 0.1
    words = ["check", "--corl", CORL, "--data", str(tmp_path / "data.hdf5"), "--seeds", "0", "1", "--updates", "1", "5"]
    monkeypatch.setattr(sys, "argv", ["peer_corl.py", *words])
    try:
        runpy.run_path(str(BENCHMARKS / "peer_corl.py"), run_name="__main__")
    finally:
        torch.set_default_dtype(torch.float32)
    differences = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(differences) == 2
    assert max(differences) < 1e-12
