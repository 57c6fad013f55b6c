"""LSTM and GRU over sequences of several episodes: equal to PyTorch's own, step by step, forward and backward."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.models.recurrent import GRU, LSTM, Recurrent
from rl_training.types import Batch

ROWS, TIME, INPUTS, SIZE = 4, 9, 3, 5


@pytest.fixture(params=[LSTM, GRU])
def layer(request) -> Recurrent:
    torch.manual_seed(0)
    made: Recurrent = request.param(INPUTS, SIZE, copies=2)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def start(layer: Recurrent, *firsts: tuple[int, int]) -> Batch:
    """A random state, and episodes that start at these rows and times."""
    generator = torch.Generator().manual_seed(1)
    states = {name: torch.randn(ROWS, 2 * SIZE, generator=generator) for name in layer.parts}
    is_first = torch.zeros(ROWS, TIME)
    for place in firsts:
        is_first[place] = 1
    return {**states, "is_first": is_first}


def inputs() -> Tensor:
    return torch.randn(ROWS, TIME, INPUTS, generator=torch.Generator().manual_seed(2))


def pytorch_cell(layer: Recurrent, copy: int) -> Any:
    """PyTorch's cell with the weights of one copy, whose gates have another order."""
    kind, order = (nn.LSTMCell, (1, 2, 3, 0)) if isinstance(layer, LSTM) else (nn.GRUCell, (0, 1, 2))
    cell = kind(INPUTS, SIZE)
    weights, biases = layer.inputs.weight.unflatten(0, (2, -1))[copy], layer.inputs.bias.unflatten(0, (2, -1))[copy]
    recurrent, zeros = layer.weight[copy].mT, torch.zeros(layer.gates * SIZE)
    if isinstance(layer, GRU):
        zeros = torch.cat([zeros[: 2 * SIZE], layer.bias[copy, 0]])
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for name, value in zip(names, (weights, recurrent, biases, zeros), strict=True):
        blocks = value.split(SIZE)
        getattr(cell, name).data.copy_(torch.cat([blocks[number] for number in order]))
    return cell


@pytest.mark.parametrize("copy", [0, 1])
def test_each_copy_equals_the_cell_of_pytorch_by_episodes(layer, copy):
    episodes = {0: (0, 4, 9), 1: (0, 9), 2: (0, 1, 2, 9), 3: (0, 9)}  # where the episodes of each row begin
    memory, x = start(layer, (0, 4), (2, 1), (2, 2), (3, 0)), inputs()
    found = layer(x, memory)[0][:, :, copy]
    cell = pytorch_cell(layer, copy)
    for row, bounds in episodes.items():
        for begin, end in pairwise(bounds):
            is_whole = begin > 0 or row == 3  # else the episode began before the sequence
            states = [memory[name][[row], copy * SIZE : (copy + 1) * SIZE] * (not is_whole) for name in layer.parts]
            for time in range(begin, end):
                states = cell(x[[row], time], tuple(states) if isinstance(layer, LSTM) else states[0])
                states = list(states) if isinstance(layer, LSTM) else [states]
                torch.testing.assert_close(found[[row], time], states[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_sequence_equals_its_steps_one_by_one(layer):
    memory, x = start(layer, (0, 4), (2, 1)), inputs()
    outputs, after = layer(x, memory)
    states = {name: memory[name] for name in layer.parts}
    for time in range(TIME):
        step, states = layer(x[:, [time]], {**states, "is_first": memory["is_first"][:, [time]]})
        torch.testing.assert_close(step[:, 0], outputs[:, time], atol=1e-5, rtol=1e-5)
    for name in layer.parts:
        torch.testing.assert_close(states[name], after[name], atol=1e-5, rtol=1e-5)
    assert after["is_first"].tolist() == [0.0] * ROWS


def gradients(layer: Recurrent, x: Tensor, memory: Batch) -> list[Tensor]:
    """Gradients of a randomly weighted sum of all outputs and last states."""
    outputs, after = layer(x, memory)
    generator = torch.Generator().manual_seed(3)
    results = [outputs, *(after[name] for name in layer.parts)]
    total = sum((each * torch.randn(each.shape, generator=generator)).sum() for each in results)
    return list(torch.autograd.grad(total, [x, *(memory[name] for name in layer.parts), *layer.parameters()]))


def test_the_backward_pass_equals_autograd(layer, monkeypatch):
    layer = layer.double()
    memory = {name: each.double() for name, each in start(layer, (0, 4), (2, 1), (3, 0)).items()}
    for name in layer.parts:
        memory[name].requires_grad_()
    x = inputs().double().requires_grad_()
    found = gradients(layer, x, memory)
    monkeypatch.setattr(layer, "differentiable_steps", layer.steps)
    for mine, expected in zip(found, gradients(layer, x, memory), strict=True):
        torch.testing.assert_close(mine, expected)


def test_gradients_flow_back_through_an_episode_and_not_beyond_its_start(layer):
    memory, x = start(layer, (0, 4)), inputs().requires_grad_()
    for name in layer.parts:
        memory[name].requires_grad_()
    outputs, _ = layer(x, memory)
    slopes, *states = torch.autograd.grad(outputs[:, -1].sum(), [x, *(memory[name] for name in layer.parts)])
    reached = slopes.abs().sum(-1) > 0
    assert reached[1:].all()  # every step of an episode that is as long as the sequence
    assert reached[0].tolist() == [time >= 4 for time in range(TIME)]
    for state in states:
        assert (state[1:] != 0).all()
        assert (state[0] == 0).all()


def test_the_state_before_the_first_step_of_an_episode_has_no_effect(layer):
    memory, x = start(layer, (0, 4)), inputs()
    other = {**memory, **{name: memory[name] + 1 for name in layer.parts}}
    changed = (layer(x, memory)[0] != layer(x, other)[0]).flatten(2).any(-1)
    assert changed[0].tolist() == [time < 4 for time in range(TIME)]
    assert changed[1:].all()


def test_copies_share_no_state(layer):
    memory, x = start(layer), inputs()
    outputs, _ = layer(x, memory)
    slopes = torch.autograd.grad(outputs[:, :, 0].sum(), layer.weight)[0]
    assert (slopes[0] != 0).any()
    assert (slopes[1] == 0).all()


def test_initial_weights_are_orthogonal_for_each_gate(layer):
    layer.orthogonal()
    for copy in layer.weight:
        for gate in copy.split(SIZE, 1):
            torch.testing.assert_close(gate @ gate.mT, torch.eye(SIZE))
    for gate in layer.inputs.weight.split(SIZE):
        torch.testing.assert_close(gate.mT @ gate, torch.eye(INPUTS))
    assert (layer.inputs.bias == 0).all()


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_weights_start_uniform_within_one_over_the_root_of_the_size(kind):
    layer = kind(8, 16)
    for parameter in (layer.inputs.weight, layer.inputs.bias, layer.weight):
        assert -0.25 <= parameter.min() < -0.2
        assert 0.2 < parameter.max() <= 0.25
    assert not isinstance(layer, GRU) or not layer.bias.any()


def test_every_weight_is_trained(layer):
    biases = {"bias"} if isinstance(layer, GRU) else set()
    assert {name for name, _ in layer.named_parameters()} == {"inputs.weight", "inputs.bias", "weight"} | biases
