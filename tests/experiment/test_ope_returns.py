"""Returns-to-go of the data in off-policy estimates."""

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.experiment.ope.returns import with_estimated_returns


def episodes(*parts: tuple[list[float], bool]) -> TransitionDataset:
    """Episodes with these rewards; the flags mark those that terminate."""
    rewards = torch.tensor([reward for part, _ in parts for reward in part])
    columns = {name: torch.zeros(len(rewards), 1) for name in ("obs", "next_obs", "actions")}
    last = torch.tensor([step == len(part) - 1 for part, _ in parts for step in range(len(part))])
    terminal = torch.tensor([flag for part, flag in parts for _ in part])
    flags = {"dones": (last & terminal).float(), "truncated": (last & ~terminal).float()}
    return TransitionDataset({**columns, "rewards": rewards, **flags})


def returns(data: TransitionDataset, gamma: float = 0.5) -> list[float]:
    found: list[float] = with_estimated_returns(data, gamma).columns["returns_to_go"].tolist()
    return found


def test_a_cut_episode_goes_on_as_the_longer_ones_do():
    longer = [([1.0, 2.0, 4.0], True)] * 10
    assert returns(episodes(*longer, ([8.0], False)))[-1] == 8 + 0.5 * (2 + 0.5 * 4)  # not 8 / (1 - 0.5)


def test_an_episode_of_several_rows_gets_the_discounted_rest():
    longer = [([1.0, 2.0, 4.0], True)] * 10
    assert returns(episodes(*longer, ([8.0, 6.0], False)))[-2:] == [8 + 0.5 * (6 + 0.5 * 4), 6 + 0.5 * 4]


def test_the_rest_of_longer_episodes_that_were_cut_too_is_estimated_first():
    longest = [([0.0, 0.0, 4.0], True)] * 10
    found = returns(episodes(*longest, ([0.0, 0.0], False), ([0.0], False)))
    assert found[-3:] == [1, 2, 1]  # the last one goes on with 2, as the others do after one row


def test_time_limits_repeat_the_rewards_of_the_episode():
    data = episodes(*[([1.0, 1.0], False)] * 20)
    assert returns(data) == data.with_discounted_returns_to_go(0.5).columns["returns_to_go"].tolist() == [2.0] * 40


def test_few_longer_episodes_are_not_enough():
    assert returns(episodes(*[([1.0, 2.0, 4.0], True)] * 9, ([8.0], False)))[-1] == 16


def test_uneven_discounts_are_used():
    data = episodes(*[([1.0, 2.0], True)] * 10, ([8.0], False)).with_columns(discounts=torch.full((21,), 0.25))
    assert returns(data)[-1] == pytest.approx(8 + 0.25 * 2)


def test_without_a_discount_only_the_rewards_count():
    assert returns(episodes(*[([1.0, 2.0], True)] * 10, ([8.0], False)), 0.0)[-1] == 8


def test_pieces_from_the_middle_do_not_count_as_the_start_of_an_episode():
    whole = [([0.0, 0.0, 0.0, 4.0], True)] * 10
    data = episodes(*whole, *[([0.0], False), ([0.0, 4.0], True)] * 10)  # without the row of step 1
    data.file_episodes = np.repeat(np.arange(20), [4] * 10 + [3] * 10)
    assert returns(data)[40:43] == [0.5**3 * 4, 2, 4]


def test_a_cut_piece_from_the_middle_goes_on_at_its_own_step():
    data = episodes(*[([1.0, 2.0, 4.0, 8.0], True)] * 10, ([1.0], False), ([4.0], False))
    data.file_episodes = np.repeat(np.arange(11), [4] * 10 + [2])
    assert returns(data)[-1] == 4 + 0.5 * 8
