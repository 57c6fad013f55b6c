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


@pytest.fixture
def peer_corl(fused, tmp_path, monkeypatch, capsys):
    """Calls the script on random data with the sizes of Hopper, and returns the lines that it prints."""
    random, rows = np.random.default_rng(0), 500
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for name, size in {"observations": 11, "next_observations": 11, "actions": 3}.items():
            file[name] = random.uniform(-0.9, 0.9, (rows, size)).astype(np.float32)
        file["rewards"], file["terminals"] = random.normal(size=rows).astype(np.float32), random.random(rows) < 0.1

    def call(command, *words):
        given = [command, "--corl", CORL, "--data", str(tmp_path / "data.hdf5"), *words]
        monkeypatch.setattr(sys, "argv", ["peer_corl.py", *given])
        runpy.run_path(str(BENCHMARKS / "peer_corl.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    yield call
    torch.set_default_dtype(torch.float32)


with_corl = pytest.mark.skipif(not CORL, reason="set RL_TRAINING_CORL (clone of CORL)")


@with_corl
def test_a_stored_training_plays_as_in_its_last_evaluation(peer_corl, tmp_path):
    task = ("--env", "Hopper-v4", "--out", str(tmp_path / "corl.json"), "--episodes", "2")
    with pytest.raises(SystemExit, match="run train with this --out first"):
        peer_corl("play", *task)
    (trained,) = peer_corl("train", *task, "--seeds", "0", "1", "--steps", "2", "--every", "2", "--device", "cpu")
    (played,) = peer_corl("play", *task)
    assert played == f"{trained[trained.index('scores') :]}, 2 episodes each"


@with_corl
def test_updates_equal_those_of_the_class_of_corl(peer_corl):
    lines = peer_corl("check", "--seeds", "0", "1", "--updates", "1", "5")
    differences = [float(line.split()[-1]) for line in lines]
    assert len(differences) == 2
    assert max(differences) < 1e-12
