"""Updates that are compiled as whole programs for a CPU learn what uncompiled ones learn."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._inductor

from rl_training.algorithms import (
    CATALOGUE,
    BCAlgorithm,
    DQNAlgorithm,
    GAILDiscriminator,
    PQNAlgorithm,
    SACAlgorithm,
    Updater,
)
from rl_training.types import EnvSpec

UNFUSED = ("dreamer", "pqn")  # LaProp and RAdam
LEARNERS = [learner for learner in CATALOGUE.values() if learner.name not in UNFUSED]
LEARNERS += [learner.discrete_type for learner in LEARNERS if learner.discrete_type is not None]
SIZES = {"hidden_sizes": [8], "critic_hidden_sizes": [8]}
EPS = 1e-3  # of Adam, whose first steps would else turn rounding errors of zero gradients into whole steps


class OwnBC(BCAlgorithm):
    """An algorithm that is not in the library."""


@pytest.fixture
def uncompiled(monkeypatch):
    """Runs the traced operations as they are, because compiling them takes seconds."""
    monkeypatch.setattr(torch._inductor, "compile", lambda graph, inputs, options: graph)


@pytest.fixture
def with_large_eps(monkeypatch):
    """Gives the optimizers of these classes a large eps."""

    def change(kind):
        own = kind.parameter_groups
        monkeypatch.setattr(kind, "parameter_groups", lambda self: [each._replace(eps=EPS) for each in own(self)])

    return change


def tensors(updater):
    state = updater.state_dict()
    moments = {f"{name}.{key}": each for name, kept in state["optimizer"].items() for key, each in kept.items()}
    return {**state["parameters"], **state["buffers"], **moments}


def both(learner, batches, prepare=lambda updater: None):
    """Updaters with fused and with plain updates after the same batches, and their last results."""
    fused, plain = (Updater([copy.deepcopy(learner)], compile=compile) for compile in (True, False))
    plain.flat, results, states = None, [], []
    assert fused.fused is not None
    for updater in (fused, plain):
        torch.manual_seed(1)
        prepare(updater)
        results.append([updater.update(batch) for batch in batches][-1])
        states.append(torch.get_rng_state())
    assert states[0].equal(states[1])
    return fused, plain, results


def assert_equal_to_rounding(fused, plain):
    mine, others = tensors(fused), tensors(plain)
    torch.testing.assert_close(mine, others, rtol=1e-4, atol=1e-5)  # names the tensor that differs


@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_fused_updates_equal_plain_ones(kind, learner_and_batches, uncompiled, with_large_eps):
    with_large_eps(kind)
    learner, batches = learner_and_batches(kind)
    fused, plain, (mine, other) = both(learner, batches[:4])
    assert_equal_to_rounding(fused, plain)
    assert mine.metrics.keys() == other.metrics.keys()
    for name, value in other.metrics.items():
        torch.testing.assert_close(mine.metrics[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.__name__)
def test_compiled_updates_of_every_algorithm_equal_plain_ones(kind, learner_and_batches, with_large_eps):
    with_large_eps(kind)
    learner, batches = learner_and_batches(kind)
    fused, plain, _ = both(learner, batches[:3])
    assert_equal_to_rounding(fused, plain)


def test_compiled_programs_equal_plain_updates(discrete, draw):
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,), max_grad_norm=0.1, double=True)
    fused, plain, _ = both(learner, [draw(discrete, 6, seed=seed) for seed in range(3)])
    assert_equal_to_rounding(fused, plain)


def test_fused_updates_clip_gradients_and_follow_schedules(discrete, draw, uncompiled):
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,), max_grad_norm=0.01)
    batches = [draw(discrete, 6, seed=seed) for seed in range(3)]
    fused, plain, _ = both(learner, batches, lambda updater: updater.schedule("learning_rate", 0.02))
    assert_equal_to_rounding(fused, plain)
    assert fused.optimizers[0].rate == pytest.approx(0.02)


def test_fused_updates_keep_the_length_of_weight_vectors(box, draw, uncompiled):
    learner = SACAlgorithm.build(box, network={"kind": "simba_v2", **SIZES})
    fused, plain, _ = both(learner, [draw(box, 6, seed=seed) for seed in range(2)])
    assert fused.unit_norm
    assert_equal_to_rounding(fused, plain)


def test_fused_updates_continue_from_a_loaded_state(box, draw, uncompiled):
    batches = [draw(box, 6, seed=seed) for seed in range(4)]
    whole, *_ = both(SACAlgorithm.build(box, hidden_sizes=(8,)), batches)
    first, second = (Updater([copy.deepcopy(whole.learner)], compile=True) for _ in range(2))
    torch.manual_seed(5)
    for batch in batches[:2]:
        first.update(batch)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for updater in (first, second):
        updater.load_state_dict(copy.deepcopy(updater.state_dict()))
    state = torch.get_rng_state()
    for updater in (first, second):
        torch.set_rng_state(state)
        for batch in batches[2:]:
            updater.update(batch)
    assert all(each.equal(tensors(second)[name]) for name, each in tensors(first).items())


def test_prioritised_batches_get_their_priorities(discrete, draw, uncompiled):
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,), prioritized=True)
    more = {"slots": torch.arange(6), "probabilities": torch.ones(6)}
    _, _, (mine, other) = both(learner, [{**draw(discrete, 6, seed=seed), **more} for seed in range(2)])
    torch.testing.assert_close(mine.priorities, other.priorities)


def test_batches_of_other_sizes_get_programs_of_their_own(discrete, draw, uncompiled):
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,))
    fused, plain, _ = both(learner, [draw(discrete, size) for size in (6, 4, 6)])
    assert len(fused.fused.programs) == 2
    assert_equal_to_rounding(fused, plain)


def test_groups_without_parameters_are_left_out(box, draw, uncompiled):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,), weight_decay=0.1, tune_temperature=False)
    fused, plain, _ = both(learner, [draw(box, 6)])
    assert 0 in map(len, (optimizer.params for optimizer in fused.optimizers))
    assert_equal_to_rounding(fused, plain)


@pytest.mark.parametrize("actions", ["discrete", "multi_discrete"])
def test_discriminators_are_fused(actions, discrete, uncompiled):
    spec = discrete if actions == "discrete" else EnvSpec((3,), "multi_discrete", 2, action_sizes=(2, 4))
    rows = {"obs": torch.rand(6, 3), "actions": torch.randint(2, (6,) if actions == "discrete" else (6, 2))}
    batch = rows | {f"expert_{name}": column.flip(0) for name, column in rows.items()}
    fused, plain, _ = both(GAILDiscriminator.build(spec, hidden_sizes=(8,)), [batch])
    assert_equal_to_rounding(fused, plain)


def test_copies_of_fused_updates_work_on_their_own_parameters(discrete, draw, uncompiled):
    batch = draw(discrete, 6)
    first = Updater([DQNAlgorithm.build(discrete, hidden_sizes=(8,))], compile=True)
    first.update(batch)
    second = copy.deepcopy(first)
    for updater in (first, second):
        updater.update(batch)
    assert all(each.equal(tensors(second)[name]) for name, each in tensors(first).items())


def test_fused_updates_notice_parameters_with_other_memory(discrete, draw, uncompiled):
    batch = draw(discrete, 6)
    learner = DQNAlgorithm.build(discrete, hidden_sizes=(8,))
    fused, plain = (Updater([copy.deepcopy(learner)], compile=compile) for compile in (True, False))
    for updater in (fused, plain):
        updater.update(batch)
        for parameter in updater.params.values():
            parameter.data = -parameter
        updater.update(batch)
    for mine, other in zip(fused.params.values(), plain.params.values(), strict=True):
        torch.testing.assert_close(mine, other)


def test_parameters_with_another_layout_get_programs_of_their_own(discrete, draw, monkeypatch):
    def compiled(graph, inputs, options):
        def program(*tensors):  # a compiled one reads memory by the strides that it was compiled for
            assert [each.stride() for each in tensors] == [each.stride() for each in inputs]
            return graph(*tensors)

        return program

    monkeypatch.setattr(torch._inductor, "compile", compiled)
    batch, updater = draw(discrete, 6), Updater([DQNAlgorithm.build(discrete, hidden_sizes=(8,))], compile=True)
    updater.update(batch)
    for parameter in updater.params.values():
        parameter.data = parameter.detach().t().contiguous().t()
    updater.update(batch)
    assert updater.updates == 2


def test_fused_updates_decay_weights(box, draw, uncompiled, with_large_eps):
    with_large_eps(SACAlgorithm)
    learner = SACAlgorithm.build(box, network={"kind": "simba", **SIZES}, weight_decay=0.5, learning_rate=0.1)
    batches = [draw(box, 6, seed=seed) for seed in range(2)]
    fused, plain, _ = both(learner, batches, lambda updater: updater.schedule("learning_rate", 0.05))
    assert_equal_to_rounding(fused, plain)


def test_only_single_learners_of_the_library_with_adam_are_fused(box, discrete):
    assert Updater([SACAlgorithm.build(box)], compile=True).fused is not None
    assert Updater([SACAlgorithm.build(box)]).fused is None
    assert Updater([SACAlgorithm.build(box) for _ in range(2)], compile=True).fused is None
    assert Updater([PQNAlgorithm.build(discrete)], compile=True).fused is None
    assert Updater([OwnBC.build(box)], compile=True).fused is None
