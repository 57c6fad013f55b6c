"""check_dataset tells doubts about data that can be trained on."""

import torch

from rl_training.data import TransitionDataset, check_dataset


def test_sound_data_raises_no_doubt(counted):
    assert check_dataset(TransitionDataset.from_dict(counted([1, 2, 3, 4], dones=(1,), truncated=(3,)))) == []


def test_constant_rewards_are_told(counted):
    (doubt,) = check_dataset(TransitionDataset.from_dict(counted([1, 1, 1], dones=(2,))))
    assert doubt == "every reward is 1: only where episodes terminate can tell one action from another"


def test_data_without_any_episode_end_is_told(counted):
    (doubt,) = check_dataset(TransitionDataset.from_dict(counted([1, 2, 3])))
    assert doubt == "no row ends an episode (dones and truncated are all 0): the 3 rows count as one"


def test_an_episode_end_that_no_flag_marks_is_told_with_its_first_row(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4], truncated=(1, 3)))
    unmarked = TransitionDataset({**dataset.columns, "truncated": torch.tensor([0.0, 0.0, 0.0, 1.0])})
    (doubt,) = check_dataset(unmarked)
    assert doubt.startswith("1 rows lead to another observation")
    assert doubt.endswith("the first is row 1")


def test_shuffled_rows_are_told(counted):
    every_row_ends = counted(list(range(12)), truncated=tuple(range(12)))
    (doubt,) = check_dataset(TransitionDataset.from_dict(every_row_ends))
    assert doubt.startswith("12 rows make 12 episodes: they look shuffled")
