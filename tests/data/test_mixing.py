"""Several datasets as one: rows stay in order, episodes end with their part, and weights say what is drawn."""

import math

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, mix_transition_datasets


@pytest.fixture
def three_and_one(counted):
    """Three rows of reward 1 that nothing ends, and one of reward 5."""
    return [TransitionDataset.from_dict(counted([1, 1, 1])), TransitionDataset.from_dict(counted([5], dones=(0,)))]


def test_rows_follow_one_another_and_an_episode_ends_with_its_part(three_and_one):
    mixed = mix_transition_datasets(three_and_one)
    assert mixed.columns["rewards"].tolist() == [1, 1, 1, 5]
    assert mixed.columns["truncated"].tolist() == [0, 0, 1, 0]
    assert mixed.episode_offsets.tolist() == [0, 3]
    assert three_and_one[0].columns["truncated"].tolist() == [0, 0, 0]


# All of the first part is 1 for ever: 1 / (1 - 0.5). Had it run on, the 5 would be in it.
def test_returns_to_go_are_the_same_before_and_after_mixing(three_and_one):
    after = mix_transition_datasets(three_and_one).with_discounted_returns_to_go(0.5)
    before = mix_transition_datasets([each.with_discounted_returns_to_go(0.5) for each in three_and_one])
    assert after.columns["returns_to_go"].tolist() == [2, 2, 2, 5]
    assert before.columns["returns_to_go"].tolist() == [2, 2, 2, 5]
    assert before.with_reward_transform(shift=1).columns["returns_to_go"].tolist() == [4, 4, 4, 6]


def test_without_weights_every_row_is_drawn_as_often(three_and_one):
    rewards = mix_transition_datasets(three_and_one).sample(40_000)["rewards"]
    assert abs((rewards == 5).sum().item() - 10_000) < 500  # standard deviation 87


def test_a_weight_says_how_often_a_part_is_drawn_from_whatever_its_size(three_and_one):
    rewards = mix_transition_datasets(three_and_one, weights=[1, 4]).sample(40_000)["rewards"]
    assert abs((rewards == 5).sum().item() - 32_000) < 500  # standard deviation 80


def test_rows_of_a_part_are_drawn_equally_often(counted):
    rows = ([0, 1, 2, 3], [4, 5], [6, 7, 8])
    parts = [TransitionDataset.from_dict(counted(rewards, dones=(len(rewards) - 1,))) for rewards in rows]
    counts = mix_transition_datasets(parts, weights=[1, 2, 1]).sample(48_000)["rewards"].long().bincount(minlength=9)
    expected = torch.tensor([3_000] * 4 + [12_000] * 2 + [4_000] * 3)  # a quarter, a half and a quarter of the rows
    assert ((counts - expected).abs() < 500).all()  # standard deviation 95 at most


def test_weights_survive_transforms_and_moves(three_and_one):
    mixed = mix_transition_datasets(three_and_one, weights=[1, 1e9]).with_reward_transform(scale=2).to("cpu")
    assert mixed.sample(100)["rewards"].unique().tolist() == [10]


def test_members_lead_the_shape_of_a_weighted_draw_and_its_state_gives_it_again(three_and_one):
    mixed = mix_transition_datasets(three_and_one, weights=[1, 1])
    mixed.seed(3)
    state = mixed.state_dict()
    first = mixed.sample(64, members=(2,))["rewards"]
    assert first.shape == (2, 64)
    mixed.load_state_dict({"generator": state["generator"].clone()})
    assert torch.equal(mixed.sample(64, members=(2,))["rewards"], first)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captured draws need CUDA")
def test_a_captured_draw_gives_new_rows_at_every_replay(three_and_one):
    mixed = mix_transition_datasets(three_and_one, weights=[1, 1]).to("cuda")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(mixed.generator)
    mixed.sample(4096)
    with torch.cuda.graph(graph):
        rewards = mixed.sample(4096)["rewards"]
    draws = []
    for _ in range(2):
        graph.replay()
        draws.append(rewards.clone())
    assert not torch.equal(*draws)
    assert abs((draws[1] == 5).sum().item() - 2048) < 200  # standard deviation 32


def test_optional_columns_are_mixed_too(counted):
    parts = [TransitionDataset.from_dict({**counted([1], dones=(0,)), "weights": [w]}) for w in (7, 8)]
    assert mix_transition_datasets(parts).columns["weights"].tolist() == [7, 8]


def test_datasets_of_different_columns_or_spaces_are_rejected(counted):
    plain = TransitionDataset.from_dict(counted([1], dones=(0,)))
    other = TransitionDataset.from_dict({**counted([1], dones=(0,)), "weights": [7]})
    wide = TransitionDataset.from_dict({**counted([1], dones=(0,)), "actions": [[2.0]]})
    with pytest.raises(ValueError, match=r"same columns: the first and number 2 differ in \['weights'\]"):
        mix_transition_datasets([plain, other])
    with pytest.raises(ValueError, match=r"^dataset 2 has .*, but dataset 1 has .* same spaces: .* --action-range"):
        mix_transition_datasets([plain, wide])


@pytest.mark.parametrize("weights", [[1], [1, 0], [1, -2], [1, math.nan], [1, math.inf]])
def test_weights_must_be_positive_and_one_a_dataset(three_and_one, weights):
    with pytest.raises(ValueError, match=r"weights must (be|have)"):
        mix_transition_datasets(three_and_one, weights=weights)


def test_nothing_cannot_be_mixed():
    with pytest.raises(ValueError, match="needs at least one dataset, got none"):
        mix_transition_datasets([])


def test_a_split_keeps_the_weights_of_the_parts(counted):
    ones, fives = (
        TransitionDataset.from_dict(counted([reward] * rows, dones=tuple(range(rows))))
        for reward, rows in ((1, 8), (5, 2))
    )
    for part in mix_transition_datasets([ones, fives], weights=[1, 3]).split(0.5, seed=1):
        assert {*part.columns["rewards"].tolist()} == {1, 5}
        rewards = part.sample(40_000)["rewards"]
        assert abs((rewards == 5).sum().item() - 30_000) < 500  # standard deviation 87
        assert part.gamma is None


def test_a_split_leaves_out_a_part_without_rows(counted):
    parts = [TransitionDataset.from_dict(counted([reward] * 4, dones=(0, 1, 2, 3))) for reward in (1, 5)]
    train, test = mix_transition_datasets(parts, weights=[1, 3]).split(0.25, by="time")
    assert {*test.sample(100)["rewards"].tolist()} == {5}
    assert abs((train.sample(40_000)["rewards"] == 5).sum().item() - 30_000) < 500


def test_a_mixture_keeps_the_trajectories_of_its_parts(counted):
    parts = [TransitionDataset.from_dict(counted([1.0] * 3, dones=(0, 2))) for _ in range(2)]
    parts[1].trajectories = parts[1].file_episodes = np.zeros(3, np.int64)
    mixed = mix_transition_datasets(parts)
    assert mixed.first_rows.tolist() == [0, 1, 3]
    assert mixed.split(0.3, by="time").test.episode_offsets.tolist() == [0, 1]  # both episodes of the last trajectory
