"""Optimizer steps on one learner and on many, on a toy learner small enough to follow by hand."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import Updater
from rl_training.algorithms.core.optimizer import clip_gradients
from rl_training.data.sampling import DeviceSampling
from rl_training.types import Batch, Loss, ParameterGroup


class Line(nn.Module):
    """Fits a line; a slow copy follows, a buffer remembers the last mean input, noise of a chosen size disturbs."""

    targets = ("line",)

    def __init__(self, *, noise: float = 0.0, max_grad_norm: float | None = None) -> None:
        super().__init__()
        self.config = SimpleNamespace(tau=0.25, batch_size=4)
        self.noise, self.max_grad_norm = noise, max_grad_norm
        self.model = nn.ModuleDict({"line": nn.Linear(2, 1)})
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("last_mean", torch.zeros(()))

    def forward(self, batch: Batch, phase: str = "loss") -> Loss:
        error = self.scale * self.model["line"](batch["x"]).squeeze(-1) - batch["y"]
        error = error + self.noise * torch.randn(error.shape)
        return Loss({"loss": error.square().mean()}, {"bias": error.mean()}, {"last_mean": batch["x"].mean()})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss", "targets")

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(0.01, max_grad_norm=self.max_grad_norm)]


def points(*shape: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(*shape, 4, 2, generator=generator), torch.randn(*shape, 4, generator=generator)
    return {"x": x, "y": 3 * y}


def lines(count: int, **options: Any) -> list[Line]:
    return [Line(**options) for _ in range(count)]


def test_an_update_is_one_step_of_adam():
    learner = Line()
    oracle = copy.deepcopy(learner)
    adam = torch.optim.Adam([*oracle.model.parameters(), oracle.scale], lr=0.01)
    updater = Updater([learner])
    for seed in range(3):
        updater.update(points(seed=seed))
        adam.zero_grad()
        oracle(points(seed=seed)).total.backward()
        adam.step()
    torch.testing.assert_close(learner.model["line"].weight, oracle.model["line"].weight, atol=1e-7, rtol=0)
    torch.testing.assert_close(learner.scale, oracle.scale, atol=1e-7, rtol=0)


def test_targets_move_tau_of_the_way_after_the_step():
    learner = Line()
    slow, fast = learner.target["line"].get_parameter("weight"), learner.model["line"].get_parameter("weight")
    before = slow.clone()
    Updater([learner]).update(points())
    torch.testing.assert_close(slow, (before + 0.25 * (fast - before)).detach(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("count", [1, 3])
def test_targets_keep_no_history_of_their_moves(count):
    updater = Updater(lines(count))
    updater.update(points() if count == 1 else points(count))
    assert [tensor.grad_fn for tensor in updater.target_params] == [None, None]
    assert not any(tensor.requires_grad for tensor in updater.target_params)


@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
def test_a_population_equals_its_members_updated_alone(max_grad_norm):
    learners = lines(3, max_grad_norm=max_grad_norm)
    population, singles = Updater(learners), [Updater([copy.deepcopy(learner)]) for learner in learners]
    for seed in range(5):
        batch = points(3, seed=seed)
        together = population.update(batch).metrics
        for i, single in enumerate(singles):
            alone = single.update({name: column[i] for name, column in batch.items()}).metrics
            torch.testing.assert_close(together["loss"][i], alone["loss"], atol=1e-5, rtol=0)
    for i, single in enumerate(singles):
        for name, tensor in {**single.params, **single.buffers}.items():
            held = {**population.params, **population.buffers}[name]
            torch.testing.assert_close(held[i], tensor, atol=1e-5, rtol=0)


@pytest.mark.parametrize("members", [1, 2])
def test_large_gradients_are_shortened_and_small_ones_are_kept(members):
    shape = (members, 2) if members > 1 else (2,)
    for size, expected in ((10.0, 0.5), (0.1, 0.1)):
        parameter = torch.zeros(shape, requires_grad=True)
        parameter.grad = size * torch.tensor([0.6, 0.8]).expand(shape).clone()  # of norm `size`
        clip_gradients([parameter], 0.5, by_member=members > 1)
        torch.testing.assert_close(parameter.grad, expected * torch.tensor([0.6, 0.8]).expand(shape))


@pytest.mark.parametrize("members", [1, 3])
def test_an_update_clips_the_gradient_of_each_member(members):
    updater = Updater(lines(members, max_grad_norm=0.5))
    updater.update(points(*[members] * (members > 1)))
    gradients = [parameter.grad for parameter in updater.params.values() if parameter.grad is not None]
    squares = torch.stack([gradient.reshape(members, -1).square().sum(1) for gradient in gradients])
    assert squares.sum(0).sqrt().tolist() == pytest.approx([0.5] * members, rel=1e-4)


def test_members_of_a_population_draw_their_own_noise():
    learner = Line(noise=1.0)
    population = Updater([learner, copy.deepcopy(learner)])
    loss = population.update({name: column.expand(2, *column.shape) for name, column in points().items()}).metrics
    assert loss["loss"][0] != loss["loss"][1]


def test_the_learners_of_a_population_hold_their_newest_numbers():
    learners = lines(2)
    population = Updater(learners)
    population.update(points(2))
    for i, learner in enumerate(learners):
        assert torch.equal(learner.scale, population.params["scale"][i])
        assert torch.equal(learner.get_buffer("last_mean"), population.buffers["last_mean"][i])


def test_a_member_goes_on_alone_and_members_come_together_again():
    population, together, alone = Updater(lines(2)), Updater(lines(2)), Updater(lines(1))
    population.update(points(2))
    for member in range(2):
        together.load_member_state(member, copy.deepcopy(population.member_state(member)))
    alone.load_state_dict(copy.deepcopy(population.member_state(1)))
    batch = points(2, seed=1)
    expected = population.update(batch).metrics["loss"]
    assert torch.equal(together.update(batch).metrics["loss"], expected)
    single = alone.update({name: rows[1] for name, rows in batch.items()}).metrics["loss"]
    torch.testing.assert_close(single, expected[1])
    torch.testing.assert_close(alone.params["scale"], population.params["scale"][1])


@pytest.mark.parametrize("count", [1, 3])
def test_buffers_of_the_loss_are_written_after_the_step(count):
    updater = Updater(lines(count))
    batch = points() if count == 1 else points(count)
    updater.update(batch)
    torch.testing.assert_close(updater.buffers["last_mean"], batch["x"].mean((-2, -1)))


def test_run_samples_as_often_as_told_and_hands_back_the_last_metrics():
    asked = []

    class Counting(DeviceSampling):
        samples_on_device, generator = False, torch.Generator()

        def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
            asked.append((batch_size, members))
            return points(*members, seed=len(asked))

    learners = lines(2)
    updater, oracle = Updater(learners), Updater(learners)
    result = updater.run(Counting(), 3)
    for seed in (1, 2, 3):
        expected = oracle.update(points(2, seed=seed)).metrics["loss"]
    assert asked == [(4, (2,))] * 3
    assert (result.num_gradient_steps, updater.updates) == (3, 3)
    torch.testing.assert_close(result.metrics["loss"], expected)


@pytest.mark.parametrize("count", [1, 3])
def test_a_loaded_updater_goes_on_bit_for_bit_in_the_memory_it_had(count):
    first, second = Updater(lines(count, noise=0.5)), Updater(lines(count, noise=0.5))
    batches = [points(*([] if count == 1 else [count]), seed=seed) for seed in range(4)]
    for batch in batches[:2]:
        first.update(batch)
    first.schedule("learning_rate", 0.003)
    saved = copy.deepcopy(first.state_dict())
    expected = [first.update(batch).metrics["loss"] for batch in batches[2:]]

    second.update(batches[3])  # so that it has optimizer state of its own to be overwritten
    held = {name: tensor.data_ptr() for name, tensor in {**second.params, **second.buffers}.items()}
    moments = {name: state["exp_avg"].data_ptr() for name, state in second.state_dict()["optimizer"].items()}
    second.load_state_dict(saved)
    assert torch.equal(second.buffers["last_mean"], saved["buffers"]["last_mean"])
    assert [second.update(batch).metrics["loss"].tolist() for batch in batches[2:]] == [e.tolist() for e in expected]
    assert second.updates == 4
    for name, tensor in {**first.params, **first.buffers}.items():
        assert torch.equal({**second.params, **second.buffers}[name], tensor)
    assert {name: tensor.data_ptr() for name, tensor in {**second.params, **second.buffers}.items()} == held
    assert {n: state["exp_avg"].data_ptr() for n, state in second.state_dict()["optimizer"].items()} == moments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("scale"), r"missing \['scale'\], unknown \[\]"),
        (lambda tensors: tensors.update(other=torch.zeros(1)), r"missing \[\], unknown \['other'\]"),
        (lambda tensors: tensors.update(scale=torch.zeros(2)), r"scale has shape \(\), saved as \(2,\)"),
    ],
)
def test_tensors_of_another_learner_are_refused(change, message):
    updater = Updater(lines(1))
    state = updater.state_dict()
    change(state["parameters"])
    with pytest.raises(ValueError, match=message):
        updater.load_state_dict(state)


def test_what_cannot_be_scheduled_is_refused_with_what_can():
    with pytest.raises(ValueError, match=r"cannot schedule 'tau'\. Choose one of learning_rate, last_mean"):
        Updater(lines(1)).schedule("tau", 0.5)


def test_a_schedule_writes_buffers_in_place_for_every_member():
    updater = Updater(lines(3))
    held = updater.buffers["last_mean"]
    updater.schedule("last_mean", 0.5)
    assert held.tolist() == [0.5, 0.5, 0.5]
