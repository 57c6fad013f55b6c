"""Observation statistics, fitted once or merged chunk by chunk."""

from __future__ import annotations

import pytest
import torch

from rl_training.models import Normalizer


def test_before_any_data_observations_pass_unchanged():
    obs = torch.tensor([[3.0, -4.0]])
    assert torch.equal(Normalizer((2,))(obs), obs)


def test_fit_takes_mean_and_deviation_and_keeps_constant_columns_finite():
    normalizer = Normalizer((2,))
    normalizer.fit(torch.tensor([[1.0, 10.0], [3.0, 10.0]]))
    assert normalizer.mean.tolist() == [2.0, 10.0]
    assert normalizer.std.tolist() == pytest.approx([1.001, 0.001])
    assert normalizer(torch.tensor([[3.0, 10.0]])).flatten().tolist() == pytest.approx([1 / 1.001, 0.0])


def test_fit_scales_columns_in_a_small_unit_but_not_rounding():
    unit = torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    rows = torch.tensor([3e-6, 70.0]) + unit * torch.tensor([1e-6, 1e-5])
    normalizer = Normalizer((2,))
    normalizer.fit(rows)
    assert normalizer(rows)[:, 0].tolist() == pytest.approx([-1, 1], rel=1e-4)
    assert normalizer(rows)[:, 1].abs().max() < 0.02


def test_rows_merged_after_a_fit_count_as_much_as_each_row_of_it():
    normalizer = Normalizer((1,))
    normalizer.fit(torch.tensor([[0.0], [1.0], [2.0]]))
    normalizer.merge(torch.tensor([[9.0]]))
    assert (normalizer.count.item(), normalizer.mean.item()) == (4, 3)  # (0 + 1 + 2 + 9) / 4


def test_chunks_merged_give_the_statistics_of_the_whole():
    rows = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 5.0, 0.1]) + 7
    normalizer = Normalizer((3,))
    for chunk in rows.split([1, 9, 40, 50]):
        normalizer.merge(chunk)
    assert normalizer.count == 100
    torch.testing.assert_close(normalizer.mean, rows.mean(0))
    torch.testing.assert_close(normalizer.std, rows.std(0, unbiased=False), rtol=1e-4, atol=0)


def test_merging_by_hand():
    normalizer = Normalizer((1,))
    normalizer.merge(torch.tensor([[0.0], [2.0]]))
    assert (normalizer.mean.item(), normalizer.std.item()) == (1.0, 1.0)
    normalizer.merge(torch.tensor([[4.0], [6.0]]))  # of 0, 2, 4, 6: mean 3, variance (9 + 1 + 1 + 9) / 4
    assert [normalizer.mean.item(), normalizer.std.item()] == pytest.approx([3.0, 5**0.5])


def test_the_statistics_follow_the_rows_after_any_number_of_merges():
    normalizer = Normalizer((2,))
    normalizer.std.fill_(2.0)
    normalizer.count.fill_(2**24)  # from here on, float32 cannot count single rows
    for _ in range(1_000):
        normalizer.merge(torch.tensor([[0.0, 4.0]]))
    share = 1_000 / 2**22
    assert normalizer.mean.tolist() == pytest.approx([0, 4 * share], rel=0.01)
    variances = normalizer.std.square() - 4  # that of the rows around the mean is 0 or 16
    assert variances.tolist() == pytest.approx([-4 * share, 12 * share], rel=0.1)


def test_a_column_that_never_moves_stays_finite_when_merged():
    normalizer = Normalizer((1,))
    normalizer.merge(torch.full((8, 1), 5.0))
    assert normalizer(torch.tensor([[5.0]])).item() == 0.0


def test_far_observations_are_clipped():
    normalizer = Normalizer((1,), clip=10.0)
    assert normalizer(torch.tensor([[50.0], [-50.0], [1.0]])).flatten().tolist() == [10.0, -10.0, 1.0]


def test_statistics_travel_in_the_state_dict():
    fitted, fresh = Normalizer((2,)), Normalizer((2,))
    fitted.fit(torch.tensor([[1.0, 2.0], [5.0, 8.0]]))
    fresh.load_state_dict(fitted.state_dict())
    assert torch.equal(fresh(torch.ones(1, 2)), fitted(torch.ones(1, 2)))
