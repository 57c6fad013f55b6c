"""Flat programs compute what the functions that they were traced from compute, bit for bit."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rl_training.algorithms import CATALOGUE, Updater
from rl_training.algorithms.core import flat as flat_module
from rl_training.algorithms.core.flat import FlatFunction, FlatLosses
from rl_training.algorithms.core.optimizer import clip_gradients
from rl_training.types import Loss

LEARNERS = [learner for learner in CATALOGUE.values() if learner.lane != "sequence"]
LEARNERS += [learner.discrete_type for learner in LEARNERS if learner.discrete_type is not None]
DERIVED = [learner for learner in LEARNERS if any(base in LEARNERS for base in learner.__mro__[1:])]


def flat_and_plain(learner):
    """Two updaters of equal learners, of which the second uses autograd, and the flat losses of the first."""
    updaters = [Updater([learner]), Updater([copy.deepcopy(learner)])]
    flat = updaters[0].flat
    assert flat is not None
    flat.after, updaters[1].flat = 0, None
    return updaters, flat


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_flat_updates_equal_those_of_autograd(kind, learner_and_batches):
    learner, batches = learner_and_batches(kind)
    updaters, flat = flat_and_plain(learner)
    results = []
    for updater in updaters:
        torch.manual_seed(1)
        results.append([updater.update(batch) for batch in batches])
    programs = flat.programs
    assert programs
    assert None not in programs.values()
    for mine, plain in zip(*results, strict=True):
        assert mine.metrics.keys() == plain.metrics.keys()
        assert all(torch.equal(mine.metrics[key], plain.metrics[key]) for key in mine.metrics)
    params = zip(updaters[0].params.values(), updaters[1].params.values(), strict=True)
    assert all(torch.equal(mine, plain) for mine, plain in params)


def test_parameters_with_other_memory_are_noticed(learner_and_batches):
    learner, batches = learner_and_batches(CATALOGUE["td3"])
    updaters, flat = flat_and_plain(learner)
    for _ in range(2):
        for updater in updaters:
            torch.manual_seed(1)
            for batch in batches:
                updater.update(batch)
        assert all(program.is_current() for program in flat.programs.values())
        for updater in updaters:  # views of one new vector
            vector_to_parameters(parameters_to_vector(updater.params.values()).neg(), updater.params.values())
    assert all(mine.equal(plain) for mine, plain in zip(*(each.params.values() for each in updaters), strict=True))


def test_a_copy_of_a_trained_learner_learns_from_its_own_parameters(learner_and_batches):
    learner, batches = learner_and_batches(CATALOGUE["td3"])
    learner.updater.flat.after = 0
    for batch in batches:
        learner.update(batch)
    assert None not in learner.updater.flat.programs.values()
    copied = copy.deepcopy(learner)
    for each in (learner, copied):
        torch.manual_seed(1)
        for batch in batches:
            each.update(batch)
    torch.testing.assert_close(copied.state_dict(), learner.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in DERIVED)) for kind in LEARNERS],
    ids=lambda kind: kind.__name__,
)
def test_updates_in_a_row_compute_metrics_at_the_last_only_and_learn_the_same(kind, learner_and_batches):
    learner, batches = learner_and_batches(kind)
    updaters, flat = flat_and_plain(learner)
    results = []
    for updater in updaters:
        torch.manual_seed(1)
        served = iter(batches)
        source = SimpleNamespace(sample=lambda *_, served=served: next(served), samples_on_device=False)
        results.append(updater.run(source, len(batches)))
    without_metrics = [program for key, program in flat.programs.items() if not key[0][1]]
    assert without_metrics
    assert None not in without_metrics
    assert results[0].metrics.keys() == results[1].metrics.keys()
    assert all(torch.equal(results[0].metrics[key], each) for key, each in results[1].metrics.items())
    params = zip(updaters[0].params.values(), updaters[1].params.values(), strict=True)
    assert all(torch.equal(mine, plain) for mine, plain in params)


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (lambda x: (x * 2).view(2, 3, 1).squeeze(-1) + 1, ["mul", "add_"]),  # the view of a view is the first again
        (lambda x: x * (torch.ones_like(x[0, 0]).expand(3) / 4), ["mul"]),
        (lambda x: torch.zeros_like(x).add_(x), ["zeros_like", "add_"]),  # written to, so made anew at each call
        (lambda x: x.sum([0], keepdim=True).view(3), ["sum"]),
        (lambda x: x.exp().relu(), ["exp", "relu_"]),
        (lambda x: x.relu(), ["relu"]),  # the input belongs to the caller
        (lambda x: torch.ones_like(x), ["ones_like"]),  # the output, too
    ],
)  # fmt: skip
def test_programs_hold_no_needless_operations(function, operations, monkeypatch):
    codes: list[str] = []

    class Written(torch.fx.GraphModule):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            codes.extend(node.target.__name__ for node in self.graph.nodes if node.op == "call_function")

    monkeypatch.setattr(torch.fx, "GraphModule", Written)
    flat, x = FlatFunction(lambda batch: function(batch["x"]), after=0), torch.arange(6.0).view(2, 3)
    for _ in range(4):
        assert torch.equal(flat({"x": x}), function(x))
    assert list(flat.programs.values()) != [None]
    assert codes == operations


@pytest.mark.parametrize("name", ["dqn", "rainbow", "ppo", "pqn", "sac", "td3"])
def test_flat_actions_equal_those_of_the_policy(name, box, discrete):
    kind = CATALOGUE[name]
    spec = box if "box" in kind.action_kinds else discrete
    learner, generator = kind.build(spec, hidden_sizes=(8, 8)), torch.Generator().manual_seed(3)

    @torch.no_grad()
    def act(batch):
        return learner.act(batch["obs"], generator=generator)

    def played(policy):
        generator.manual_seed(4)
        return [policy({"obs": torch.full((2, 3), step / 10)}).actions for step in range(6)]

    flat = FlatFunction(act, after=0, generator=generator)
    assert torch.equal(torch.stack(played(flat)), torch.stack(played(act)))
    assert list(flat.programs.values()) != [None]


def test_a_function_that_cannot_be_traced_is_called_as_it_is():
    flat = FlatFunction(lambda batch: batch["x"] * float(batch["x"].sum()), after=0)
    for step in range(3):
        assert flat({"x": torch.full((2,), 1.0 + step)}).tolist() == [2 * (1.0 + step) ** 2] * 2
    assert list(flat.programs.values()) == [None]


def test_a_function_with_a_state_of_its_own_is_called_as_it_is():
    calls = []

    def count(batch):
        calls.append(1)
        return batch["x"] + len(calls)

    flat = FlatFunction(count, after=0)
    assert [flat({"x": torch.zeros(())}).item() for _ in range(3)] == [1, 3, 4]  # the trace was the second call
    assert list(flat.programs.values()) == [None]


def test_batches_of_other_shapes_and_layouts_have_programs_of_their_own():
    flat = FlatFunction(lambda batch: batch["x"].reshape(-1) * 2, after=0)
    x = torch.arange(6.0).view(2, 3)
    for each in (x, x.T, x, x.T, x[:1], x[:1]):
        assert flat({"x": each}).tolist() == (each.reshape(-1) * 2).tolist()
    assert len(flat.programs) == 3


def test_parameters_that_share_a_gradient_are_left_to_autograd():
    params = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    flat = FlatLosses(lambda batch, phase: Loss({"loss": (sum(params) * batch["x"]).sum()}), params, after=0)
    for _ in range(3):
        for each in params:
            each.grad = None
        flat({"x": torch.ones(2)}, "loss")
        clip_gradients(params, 0.1, by_member=False)  # in place
        norm = torch.linalg.vector_norm(torch.cat([each.grad for each in params if each.grad is not None]))
        assert norm.item() == pytest.approx(0.1, rel=1e-3)
    assert list(flat.programs.values()) == [None]


def test_a_function_is_traced_once_it_has_taken_the_time_of_a_trace(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(flat_module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))  # one second a call
    flat = FlatFunction(lambda batch: batch["x"] * 2, after=3.0)
    for _ in range(3):
        flat({"x": torch.ones(2)})
    assert flat.programs == {}
    flat({"x": torch.ones(2)})
    assert [program is not None for program in flat.programs.values()] == [True]


def test_a_value_that_was_computed_outside_of_the_function_is_not_repeated_for_ever():
    made = {"scale": torch.ones(())}
    flat = FlatFunction(lambda batch: batch["x"] * made["scale"], after=0)
    for step in range(4):
        made["scale"] = torch.full((), float(step))  # another tensor, unlike a parameter
        assert flat({"x": torch.ones(2)}).tolist() == [step] * 2
    assert list(flat.programs.values()) == [None]


def test_memory_that_a_product_shares_is_not_reused():
    weight = torch.randn(3, 4)

    def function(batch):
        product = batch["x"] @ weight
        return product.clamp_min(-50).sum(), product.flatten(0, 1).sum(0)

    flat = FlatFunction(function, after=0)
    for scale in (1, 1, 1, 100):  # only the last batch has values below -50
        batch = {"x": scale * torch.randn(2, 5, 3)}
        assert all(map(torch.equal, flat(batch), function(batch)))
    assert None not in flat.programs.values()
