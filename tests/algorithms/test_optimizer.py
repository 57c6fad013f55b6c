"""Our Adam is torch's, to the bit."""

import pytest
import torch

from rl_training.algorithms.optimizer import Adam
from rl_training.types import ParameterGroup

TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def parameters() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in ((3, 4), (5,), ())]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_it_moves_as_torchs_does_even_where_a_phase_leaves_parameters_out(kind):
    mine, theirs = parameters(), parameters()
    ours = Adam(mine, ParameterGroup(1e-2, kind=kind, eps=1e-5, weight_decay=0.1))
    reference = TORCH[kind](theirs, lr=torch.tensor(1e-2), eps=1e-5, weight_decay=0.1, fused=True)
    for phase in ("all", "first", "all", "rest", "rest"):
        ours.zero_grad()
        reference.zero_grad()
        chosen = {"all": slice(0, 3), "first": slice(0, 1), "rest": slice(1, 3)}[phase]
        for params in (mine, theirs):
            torch.stack([parameter.pow(3).sum() for parameter in params[chosen]]).sum().backward()
        ours.step()
        reference.step()
    for a, b, state in zip(mine, theirs, ours.state(), strict=True):
        assert torch.equal(a, b)
        assert {key: value.tolist() for key, value in state.items()} == {
            key: value.tolist() for key, value in reference.state[b].items()
        }


def test_without_a_gradient_nothing_moves():
    params = parameters()
    before = [parameter.clone() for parameter in params]
    Adam(params, ParameterGroup(1e-2)).step()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


def test_a_halted_step_leaves_parameters_moments_and_counts_as_they_are():
    mine, theirs = parameters(), parameters()
    ours, reference = (Adam(params, ParameterGroup(1e-2)) for params in (mine, theirs))
    for halted in (0.0, 1.0, 0.0):
        for params, adam in ((mine, ours), (theirs, reference)):
            adam.zero_grad()
            torch.stack([parameter.pow(3).sum() for parameter in params]).sum().backward()
        ours.step(torch.tensor(halted))
        if not halted:
            reference.step()
    for a, b, state, expected in zip(mine, theirs, ours.state(), reference.state(), strict=True):
        assert torch.equal(a, b)
        assert all(torch.equal(state[name], expected[name]) for name in expected)
        assert state["step"] == 2


def test_the_rate_can_be_written_between_steps():
    (parameter,) = [torch.zeros((), requires_grad=True)]
    adam = Adam([parameter], ParameterGroup(0.1))
    for rate, expected in ((0.1, -0.1), (0.5, -0.6)):  # with a constant gradient each step is as long as the rate
        adam.rate.fill_(rate)
        adam.zero_grad()
        parameter.backward()
        adam.step()
        assert parameter.item() == pytest.approx(expected, rel=1e-5)
