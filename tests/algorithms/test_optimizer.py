"""Our Adam is torch's, to the bit; RAdam is torch's, to rounding; LaProp is a plain loop's."""

import pytest
import torch

from rl_training.algorithms.core.optimizer import MIN_PIECE, Optimizer, clip_to_weights, piece_size, pieces
from rl_training.types import ParameterGroup

TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def parameters() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=True) for shape in ((3, 4), (5,), ())]


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_it_moves_as_torchs_does_even_where_a_phase_leaves_parameters_out(kind):
    mine, theirs = parameters(), parameters()
    ours = Optimizer(mine, ParameterGroup(1e-2, kind=kind, eps=1e-5, weight_decay=0.1))
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


@pytest.mark.parametrize("cuts", [False, True])
def test_radam_equals_that_of_torch_before_and_after_it_is_rectified(cuts, monkeypatch):
    monkeypatch.setattr(Optimizer, "_cuts", lambda self, params: cuts)
    monkeypatch.setattr("rl_training.algorithms.core.optimizer.MIN_PIECE", 4)
    mine, theirs = parameters(), parameters()
    ours = Optimizer(mine, ParameterGroup(1e-2, kind="radam", weight_decay=0.1))
    reference = torch.optim.RAdam(theirs, lr=1e-2, weight_decay=0.1)
    for step in range(12):  # the first five follow the mean gradient
        for params, optimizer in ((mine, ours), (theirs, reference)):
            optimizer.zero_grad()
            torch.stack([parameter.pow(3).sum() for parameter in params]).sum().backward()
            optimizer.step()
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=f"step {step}")


def laprop(value: float, gradients: list[float | None], rate: float) -> float:
    """By hand, of one number: scaled by the root of mean squares first, averaged after."""
    mean = square = 0.0
    count = 0
    for gradient in gradients:
        if gradient is not None:
            count += 1
            square = 0.999 * square + 0.001 * gradient**2
            mean = 0.9 * mean + 0.1 * gradient / ((square / (1 - 0.999**count)) ** 0.5 + 1e-20)
            value -= rate * mean / (1 - 0.9**count)
    return value


def moved(optimizer: Optimizer, gradients: list[list[float | None]]) -> list[float]:
    """Where so many single numbers are after these gradients, a row for each step."""
    for row in gradients:
        for parameter, gradient in zip(optimizer.params, row, strict=True):
            parameter.grad = None if gradient is None else torch.full_like(parameter, gradient)
        optimizer.step()
    return [parameter.item() for parameter in optimizer.params]


def test_laprop_scales_first_and_averages_after_and_a_number_left_out_keeps_its_count():
    optimizer = Optimizer([torch.tensor(1.0), torch.tensor(-2.0)], ParameterGroup(0.1, kind="laprop", eps=1e-20))
    gradients: list[list[float | None]] = [[1.0, 5.0], [-30.0, None], [0.2, None], [4.0, -1e-9], [0.0, 0.0]]
    mine, other = zip(*gradients, strict=True)
    expected = [laprop(1.0, list(mine), 0.1), laprop(-2.0, list(other), 0.1)]
    assert moved(optimizer, gradients) == pytest.approx(expected, rel=1e-5)
    assert optimizer.counts.tolist() == [5, 3]


def test_laprop_adds_epsilon_to_the_root_of_the_mean_square():
    optimizer = Optimizer([torch.tensor(0.0)], ParameterGroup(0.1, kind="laprop", eps=0.5))
    # a step of -rate * g / (sqrt(g^2) + epsilon)
    assert moved(optimizer, [[2.0]]) == pytest.approx([-0.1 * 2 / (2 + 0.5)], rel=1e-5)


def test_the_rate_rises_over_the_warm_up():
    optimizer = Optimizer([torch.tensor(0.0)], ParameterGroup(1.0, kind="laprop", eps=1e-20, warm_up=4))
    places = [moved(optimizer, [[1.0]])[0] for _ in range(6)]  # a constant gradient makes steps as long as the rate
    assert places == pytest.approx([-0.25, -0.75, -1.5, -2.5, -3.5, -4.5], rel=1e-4)


def test_gradients_are_clipped_to_a_share_of_their_own_tensors_norm():
    weights = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.tensor([3.0, 4.0])]
    grads = [torch.tensor([0.0, 10.0]), torch.tensor([0.0, 10.0]), torch.tensor([0.0, 1.0])]
    clip_to_weights(weights, grads, 0.3)
    # 0.3 * 5 = 1.5; of a tensor of zeros 0.3 * 0.001; and what is below is left as it is
    assert [grad[1].item() for grad in grads] == pytest.approx([1.5, 3e-4, 1.0])


def test_gradients_of_a_population_are_clipped_to_the_weights_of_their_own_member():
    weights = [torch.tensor([[3.0, 4.0], [30.0, 40.0]])]
    grads = [torch.tensor([[0.0, 10.0], [0.0, 10.0]])]
    clip_to_weights(weights, grads, 0.3, by_member=True)
    assert grads[0][:, 1].tolist() == pytest.approx([1.5, 10.0])  # 0.3 * 5, and less than 0.3 * 50


def test_a_gradient_of_zero_stays_zero():
    grads = [torch.zeros(2)]
    clip_to_weights([torch.ones(2)], grads, 0.3)
    assert grads[0].tolist() == [0, 0]


def test_a_group_can_ask_for_both():
    optimizer = Optimizer([torch.tensor(2.0)], ParameterGroup(0.1, kind="laprop", eps=1e-20, max_grad_ratio=0.5))
    at = moved(optimizer, [[100.0], [1.0]])  # clipped to halves of 2 and of 1.9
    assert at == pytest.approx([laprop(2.0, [1.0, 0.95], 0.1)], rel=1e-5)


def test_without_a_gradient_nothing_moves():
    params = parameters()
    before = [parameter.clone() for parameter in params]
    Optimizer(params, ParameterGroup(1e-2)).step()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


def test_a_halted_step_leaves_parameters_moments_and_counts_as_they_are():
    mine, theirs = parameters(), parameters()
    ours, reference = (Optimizer(params, ParameterGroup(1e-2)) for params in (mine, theirs))
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


@pytest.mark.parametrize("kind", ["laprop", "radam"])
def test_some_kinds_cannot_skip_updates(kind):
    optimizer = Optimizer([torch.tensor(1.0)], ParameterGroup(0.1, kind=kind))
    optimizer.params[0].grad = torch.tensor(1.0)
    with pytest.raises(ValueError, match=f"{kind} cannot skip updates"):
        optimizer.step(torch.tensor(1.0))


def test_the_rate_can_be_written_between_steps():
    (parameter,) = [torch.zeros((), requires_grad=True)]
    adam = Optimizer([parameter], ParameterGroup(0.1))
    for rate, expected in ((0.1, -0.1), (0.5, -0.6)):  # with a constant gradient each step is as long as the rate
        adam.rate.fill_(rate)
        adam.zero_grad()
        parameter.backward()
        adam.step()
        assert parameter.item() == pytest.approx(expected, rel=1e-5)


def test_pieces_are_views_of_at_most_so_many_entries():
    tensors = [torch.zeros(3, 5), torch.zeros(())]
    cut = pieces(tensors, 4)
    assert [len(piece) for piece in cut] == [4, 4, 4, 3, 1]
    for piece in cut:
        piece.add_(1)
    assert all(tensor.eq(1).all() for tensor in tensors)
    assert all(a is b for a, b in zip(pieces(tensors, None), tensors, strict=True))


def test_small_networks_are_cut_finer_than_large_ones():
    sizes = [piece_size([torch.empty(entries, device="meta")]) for entries in (1, 280_000, 4_000_000)]
    assert sizes == [MIN_PIECE, 16_384, None]


def test_adam_in_pieces_moves_as_adam_on_whole_tensors(monkeypatch):
    whole, cut = parameters(), parameters()
    reference = Optimizer(whole, ParameterGroup(1e-2))
    monkeypatch.setattr(Optimizer, "_cuts", lambda self, params: True)
    monkeypatch.setattr("rl_training.algorithms.core.optimizer.MIN_PIECE", 4)
    adam = Optimizer(cut, ParameterGroup(1e-2))
    for chosen in (slice(0, 3), slice(1, 3), slice(0, 1)):
        for params, optimizer in ((whole, reference), (cut, adam)):
            optimizer.zero_grad()
            torch.stack([parameter.pow(3).sum() for parameter in params[chosen]]).sum().backward()
        reference.step()
        adam.step()
    assert len(adam._selected[0, 1, 2].params) == 6  # of 12, 5 and 1 entries
    for a, b, state, expected in zip(cut, whole, adam.state(), reference.state(), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(state, expected)


@pytest.mark.parametrize("compile", [False, True])
def test_adam_of_single_operations_moves_as_the_fused_kernel_does(compile, monkeypatch):
    monkeypatch.setattr(torch, "compile", torch.compile if compile else lambda function, **options: function)
    mine, theirs = parameters(), parameters()
    ours, reference = Optimizer(mine, ParameterGroup(1e-2), compile=True), Optimizer(theirs, ParameterGroup(1e-2))
    for chosen in (slice(0, 3), slice(1, 3), slice(0, 3)):
        for params, optimizer in ((mine, ours), (theirs, reference)):
            optimizer.zero_grad()
            torch.stack([parameter.pow(3).sum() for parameter in params[chosen]]).sum().backward()
            optimizer.step()
    for a, b, state, expected in zip(mine, theirs, ours.state(), reference.state(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(state, expected, rtol=1e-6, atol=1e-7)
