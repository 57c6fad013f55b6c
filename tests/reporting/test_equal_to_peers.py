"""Updates of rl_training equal those of the peers' own classes on the same batches and noise."""

from __future__ import annotations

import argparse
import importlib
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
VARIABLES = ("RL_TRAINING_SB3_PYTHON", "RL_TRAINING_FLAX_PYTHON", "RL_TRAINING_CORL")
SB3, FLAX, CORL = (os.environ.get(name, "") for name in VARIABLES)
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no folder benchmarks, as in an archive of the source")
with_peers = pytest.mark.skipif(
    not (SB3 and CORL),
    reason="set RL_TRAINING_SB3_PYTHON (Python of a venv with sb3-contrib) and RL_TRAINING_CORL (clone of CORL)",
)
CASES = [
    "dqn", "qr_dqn", "td3", "ppo", "ppo_discrete", "ppo_masked", "ppo_recurrent", "sac", "sac_ordered", "tqc", "crossq",
    "crossq_renorm", "cql", "iql", "awac", "edac", "edac_ordered", "rebrac", "td3_bc",
]  # fmt: skip
DIFFERENT = ("sac", "crossq_renorm", "edac")  # by the order of steps or a constant


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module("equal_to_peers")
    importlib.import_module("equal_peers.precision").use_precision(32)


def test_every_case_is_tested(script):
    assert list(script.CASES) == CASES


@pytest.mark.parametrize("name", CASES)
def test_the_stored_noise_is_what_the_losses_draw(script, name, monkeypatch):
    case = script.CASES[name]
    learner, inputs = script.prepared(case, 10, seed=0)
    drawn = []

    def recorded(function):
        def draw(*sizes, **options):
            drawn.append(function(*sizes, **options))
            return drawn[-1]

        return draw

    for function in ("rand", "randn", "randn_like"):
        monkeypatch.setattr(torch, function, recorded(getattr(torch, function)))
    monkeypatch.setattr(learner.updater, "flat", None)
    updates = importlib.import_module("equal_peers.ours").batch_updates
    last = max((draw.every for draw in case.draws), default=0)  # the first update that draws all noise
    for _ in islice(updates(learner, case, inputs), last):
        pass
    assert len(drawn) == sum(last // draw.every for draw in case.draws)
    stored = [inputs[f"noise/{draw.name}"][last - 1] for draw in case.draws]
    for draw, numbers, expected in zip(case.draws, drawn[-len(stored) :], stored, strict=True):
        np.testing.assert_array_equal(2 * numbers - 1 if draw.uniform else numbers, expected)


@pytest.mark.parametrize("name", CASES)
def test_parameters_have_the_layout_of_linear_layers(script, name):
    learner, inputs = script.prepared(script.CASES[name], 10, seed=0)
    initial = {name: value for name, value in inputs.items() if name.startswith("initial/")}
    statistics = [each for name, each in learner.named_buffers() if name.endswith((".mean", ".var"))]
    expected = sum(each.numel() for each in [*learner.parameters(), *statistics])
    assert sum(value.size for value in initial.values()) == expected
    layers = [name for name in initial if name.endswith(".weight")]
    assert all(initial[f"{name.removesuffix('weight')}bias"].shape == initial[name].shape[:1] for name in layers)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("ppo")])
def test_every_update_on_a_rollout_changes_parameters(script, name):
    case = script.CASES[name]
    learner, inputs = script.prepared(case, 10, seed=0)
    first, second = importlib.import_module("equal_peers.ours").trained(learner, case, inputs, (1, 2)).values()
    assert first.keys() == second.keys()
    assert any((first[name] != second[name]).any() for name in first)


def test_the_largest_difference_of_all_parameters_counts(script):
    ours = {"a": np.zeros(3), "b": np.array([1.0, 2.0])}
    assert script.largest_difference(ours, {"a": np.full(3, 0.1), "b": np.array([1.0, 2.5])}) == 0.5
    with pytest.raises(ValueError, match="differ by name"):
        script.largest_difference(ours, {"a": np.zeros(3)})


def test_cases_above_the_goal_need_a_reason(script):
    row = {"what": "DQN", "updates": [30], "max_difference": {"30": 1e-7}, "reason": ""}
    other = {**row, "what": "SAC", "max_difference": {"30": 1e-3}, "reason": "order of steps"}
    assert script.summary([row, other])["result"] == "1 of 2 within 1e-05; stated reason: SAC"
    assert script.summary([row, {**other, "reason": ""}])["result"] == "1 of 2 within 1e-05; no stated reason: SAC"


def test_a_finished_case_of_the_same_commit_is_read(script, monkeypatch, tmp_path):
    runs = []

    def compared(name, python, args):
        runs.append(name)
        return {"case": name}

    monkeypatch.setattr(script, "compared", compared)
    args = argparse.Namespace(keep=tmp_path / "kept", seed=0, updates=[200, 30])
    for commit in ("a", "a", "b"):
        assert script.kept("dqn", Path("python"), args, commit) == {"case": "dqn"}
    assert runs == ["dqn", "dqn"]


@with_peers
@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_ten_updates_equal_those_of_the_peer(script, name):
    case = script.CASES[name]
    bits, python = case.precisions[-1], FLAX if case.peer == "corl_jax" else SB3
    if not python:
        pytest.skip("set RL_TRAINING_FLAX_PYTHON (Python of a venv with PyTorch and Flax)")
    found = script.differences(case, [10], bits, Path(python), argparse.Namespace(seed=0, corl=Path(CORL)))
    assert found["max_difference"]["10"] < {32: 1e-6, 64: 1e-10}[bits]
    assert found["max_change"]["10"] > 1e-4
