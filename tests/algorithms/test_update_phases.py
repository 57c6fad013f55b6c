"""Phases, groups, clipping, halting and rates of updates, on two numbers that can be followed by hand."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms import Learner, Updater
from rl_training.algorithms.core.optimizer import clip_gradients
from rl_training.data.sampling import DeviceSampling
from rl_training.types import Batch, Loss, ParameterGroup


class TwoNumbers(nn.Module):
    """Each phase minimises one of two numbers; the first step of Adam moves it by the learning rate."""

    targets = ()

    def __init__(self, *phases: str, groups: list[ParameterGroup] | None = None) -> None:
        super().__init__()
        self.config = SimpleNamespace(tau=1.0)
        self.a, self.b = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))
        self.order, self.groups = phases, groups or [ParameterGroup(0.1)]

    def forward(self, batch: Batch, phase: str = "loss") -> Loss:
        return Loss({f"{phase}_loss": getattr(self, phase) * 1.0}, {f"a_before_{phase}": self.a * 1.0})

    def phases(self, update: int) -> tuple[str, ...]:
        return self.order

    def parameter_groups(self) -> list[ParameterGroup]:
        return self.groups


def test_phases_run_in_their_order_each_on_the_result_of_the_last():
    metrics = Updater([TwoNumbers("a", "b")]).update({}).metrics
    assert [metrics["a_before_a"].item(), metrics["a_before_b"].item()] == pytest.approx([1.0, 0.9])
    metrics = Updater([TwoNumbers("b", "a")]).update({}).metrics
    assert metrics["a_before_b"].item() == 1.0


def test_a_phase_moves_only_what_its_loss_reaches():
    learner = TwoNumbers("b")
    Updater([learner]).update({})
    assert [learner.a.item(), learner.b.item()] == pytest.approx([1.0, 0.9])


def test_a_phase_may_leave_a_clipped_group_without_gradients():
    learner = TwoNumbers("b", groups=[ParameterGroup(0.1, ("a",), max_grad_norm=1.0), ParameterGroup(0.1)])
    Updater([learner]).update({})
    assert learner.b.item() == pytest.approx(0.9)


def test_groups_take_parameters_by_prefix_with_their_own_learning_rates():
    learner = TwoNumbers("a", "b", groups=[ParameterGroup(0.5, ("b",)), ParameterGroup(0.1)])
    Updater([learner]).update({})
    assert [learner.a.item(), learner.b.item()] == pytest.approx([0.9, 0.5])


def test_a_group_has_its_own_kind_of_optimizer_and_its_own_decay():
    learner = TwoNumbers("a", "b", groups=[ParameterGroup(0.1, ("b",), "adamw", weight_decay=0.5), ParameterGroup(0.1)])
    Updater([learner]).update({})
    assert [learner.a.item(), learner.b.item()] == pytest.approx([0.9, 1 - 0.1 * 0.5 - 0.1])


def test_the_actor_has_its_learning_rate_and_its_weight_decay():
    config = SimpleNamespace(learning_rate=0.1, actor_learning_rate=0.2, weight_decay=0.5, max_grad_norm=None)
    names: dict[str, tuple[str, ...]] = {"actor_parameters": ("a", "c"), "undecayed": ("b", "c")}
    learner: Any = TwoNumbers("a", "b", "c", "d")
    learner.c, learner.d = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.0))

    def after_an_update(**changed: object) -> list[float]:
        learned, options = copy.deepcopy(learner), SimpleNamespace(**{**vars(config), **changed})
        learned.groups = Learner.parameter_groups(SimpleNamespace(config=options, **names))  # type: ignore[arg-type]
        Updater([learned]).update({})
        return [round(getattr(learned, name).item(), 5) for name in "abcd"]

    # Adam's first step is the learning rate, and AdamW multiplies the number by 1 - learning rate * decay before it.
    assert after_an_update() == [1 - 0.2 * 0.5 - 0.2, 1 - 0.1, 1 - 0.2, 1 - 0.1 * 0.5 - 0.1]
    assert after_an_update(actor_learning_rate=None) == [0.85, 0.9, 0.9, 0.85]
    assert after_an_update(weight_decay=0.0) == [0.8, 0.9, 0.8, 0.9]
    names["undecayed"] = ()
    assert after_an_update() == [0.7, 0.85, 0.7, 0.85]


def test_a_parameter_that_no_group_takes_is_refused():
    with pytest.raises(ValueError, match=r"parameter_groups\(\) has no group for \['a'\]"):
        Updater([TwoNumbers("a", groups=[ParameterGroup(0.1, ("b",))])])


def clipped(*gradients: list[Any], by_member: bool) -> list[list[float]]:
    """These gradients, clipped to a norm of one and flattened."""
    params = [torch.zeros(torch.tensor(gradient).shape, requires_grad=True) for gradient in gradients]
    for parameter, gradient in zip(params, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    clip_gradients(params, 1.0, by_member=by_member)
    return [parameter.grad.flatten().tolist() for parameter in params if parameter.grad is not None]


@pytest.mark.parametrize(("gradient", "shrunk"), [([3.0, 0.0, 4.0], [0.6, 0.0, 0.8]), ([0.3, 0.0, 0.4],) * 2])
def test_clipping_shrinks_all_gradients_to_one_norm_and_lets_small_ones_pass(gradient, shrunk):
    vector, scalar = clipped(gradient[:2], gradient[2:], by_member=False)
    assert vector + scalar == pytest.approx(shrunk)


def test_clipping_by_member_looks_at_each_member_alone():
    # member 0 has norm sqrt(3^2 + 4^2) = 5 over both tensors, member 1 sqrt(0.3^2 + 0.4^2) = 0.5
    vectors, scalars = clipped([[3.0, 0.0], [0.0, 0.3]], [4.0, 0.4], by_member=True)
    assert vectors == pytest.approx([0.6, 0.0, 0.0, 0.3])
    assert scalars == pytest.approx([0.8, 0.4])


class Halting(TwoNumbers):
    """Minimises `a` while the batch's number is below 2, and halts for good where it is not."""

    halted: torch.Tensor

    def __init__(self) -> None:
        super().__init__("a")
        self.config = SimpleNamespace(tau=1.0, batch_size=1)
        self.register_buffer("halted", torch.zeros(()))

    def forward(self, batch: Batch, phase: str = "loss") -> Loss:
        halted = torch.maximum(self.halted, (batch["x"] >= 2).float())
        return super().forward(batch, phase)._replace(buffers={"halted": halted})


def test_a_halted_learner_is_left_as_it_is_from_that_batch_on():
    learner = Halting()
    updater = Updater([learner])
    for x, expected in ((1.0, 0.9), (1.0, 0.8), (2.0, 0.8), (1.0, 0.8)):  # a step of Adam is its rate, 0.1
        updater.update({"x": torch.tensor(x)})
        assert learner.a.item() == pytest.approx(expected)
    learner.halted.zero_()
    updater.update({"x": torch.tensor(1.0)})
    assert learner.a.item() == pytest.approx(0.7)


def test_run_goes_no_further_than_the_batch_that_halts():
    class Rising(DeviceSampling):
        samples_on_device, generator, drawn = False, torch.Generator(), 0

        def sample(self, batch_size: int, members: tuple[int, ...] = ()) -> Batch:
            self.drawn += 1
            return {"x": torch.tensor(self.drawn / 2)}

    updater, source = Updater([Halting()]), Rising()
    result = updater.run(source, 10)
    assert (result.num_gradient_steps, updater.updates, source.drawn) == (4, 4, 4)  # 0.5, 1, 1.5; 2 halts


def test_members_of_a_population_cannot_halt():
    with pytest.raises(ValueError, match="cannot be a member of a population"):
        Updater([Halting(), Halting()])


def test_going_back_to_the_start_forgets_the_moments():
    updater, fresh = Updater([TwoNumbers("a", "b")]), Updater([TwoNumbers("a", "b")])
    start = copy.deepcopy(updater.state_dict())
    for _ in range(3):
        updater.update({})
    updater.load_state_dict(start)
    updater.update({})
    fresh.update({})
    assert updater.params["a"].item() == fresh.params["a"].item()


def test_a_scheduled_learning_rate_moves_every_group_in_proportion():
    learner = TwoNumbers("a", "b", groups=[ParameterGroup(0.1, ("a",)), ParameterGroup(0.4)])
    updater = Updater([learner])
    updater.schedule("learning_rate", 0.05)
    updater.update({})
    assert [learner.a.item(), learner.b.item()] == pytest.approx([0.95, 0.8])


def test_a_group_with_a_rate_of_its_own_name_is_scheduled_alone():
    groups = [ParameterGroup(0.1, ("a",), rate="actor_learning_rate"), ParameterGroup(0.4)]
    learner = TwoNumbers("a", "b", groups=groups)
    updater = Updater([learner])
    updater.schedule("actor_learning_rate", 0.05)
    updater.update({})
    assert [learner.a.item(), learner.b.item()] == pytest.approx([0.95, 0.6])
    updater.schedule("learning_rate", 0.2)  # of every group: half of what each began with
    assert [rate.item() for rate in updater.state_dict()["rates"]] == pytest.approx([0.05, 0.2])
