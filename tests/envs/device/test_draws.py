"""Counter-based random numbers: uniform, reproducible, and independent across rows, episodes and calls."""

import pytest
import torch

from rl_training.envs.device.draws import Draws

ROWS = torch.arange(20_000)


def test_numbers_are_uniform():
    drawn = Draws.of(0, ROWS).uniform(4)
    assert drawn.dtype == torch.float64
    assert (drawn.mean(0) - 0.5).abs().max() < 0.01
    assert (drawn.var(0) - 1 / 12).abs().max() < 0.002
    counts = torch.histc(drawn, 64, 0, 1) / drawn.numel() * 64
    assert (counts - 1).abs().max() < 0.1
    assert drawn.min() >= 0
    assert drawn.max() < 1


def test_integers_have_equal_frequencies():
    counts = Draws.of(5, ROWS).integers(3, 5).flatten().bincount() / (3 * len(ROWS))
    assert counts.tolist() == pytest.approx([0.2] * 5, abs=0.01)


@pytest.mark.parametrize("other", [Draws.of(1, ROWS), Draws.of(2**40, ROWS), Draws.of(0, ROWS + 1),
                                   Draws.of(0, ROWS, torch.ones_like(ROWS))])  # fmt: skip
def test_seeds_rows_and_episodes_are_independent(other):
    pair = torch.stack((Draws.of(0, ROWS).uniform(1)[:, 0], other.uniform(1)[:, 0]))
    assert torch.corrcoef(pair)[0, 1].abs() < 0.03
    assert (pair[0] == pair[1]).float().mean() < 0.001


def test_calls_follow_each_other_and_depend_on_their_place_alone():
    at_once, in_turn = Draws.of(7, ROWS), Draws.of(7, ROWS)
    together = at_once.uniform(3)
    assert torch.equal(together, torch.cat((in_turn.uniform(1), in_turn.uniform(2)), -1))
    assert torch.equal(together[5:9], Draws.of(7, ROWS[5:9]).uniform(3))
    assert torch.corrcoef(together.T)[0, 1].abs() < 0.03
