"""TransitionDataset: conversion, episodes, reward transforms, returns-to-go, sampling."""

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.data.datasets.returns import BLOCK, episode_returns, returns_to_go
from rl_training.types import EnvSpec

PENDULUM = EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))


def test_columns_of_different_lengths_are_refused_with_all_lengths(counted):
    values = {**counted([0, 0, 0]), "rewards": [1.0, 2.0]}
    with pytest.raises(ValueError, match=r"all columns must have the same length, got \{'obs': 3, .*'rewards': 2"):
        TransitionDataset.from_dict(values)


def test_a_missing_column_is_named(counted):
    values = counted([0, 0])
    del values["next_obs"]
    with pytest.raises(ValueError, match=r"\['next_obs'\] are missing"):
        TransitionDataset.from_dict(values)


def test_an_empty_dataset_is_rejected(counted):
    with pytest.raises(ValueError, match="empty"):
        TransitionDataset.from_dict(counted([]))


def test_a_value_that_is_not_finite_is_refused_by_column_and_first_row(counted):
    values = counted([0, np.nan, 0, np.inf])
    with pytest.raises(ValueError, match=r"'rewards' is NaN or infinite in 2 of 4 rows, the first is row 1"):
        TransitionDataset.from_dict(values)


def test_a_flag_that_is_neither_0_nor_1_is_rejected(counted):
    values = {**counted([0, 0]), "dones": [0.0, 0.5]}
    with pytest.raises(ValueError, match=r"'dones' must hold 0 or 1, row 1 holds 0.5"):
        TransitionDataset.from_dict(values)


def test_text_is_refused_as_a_column(counted):
    with pytest.raises(TypeError, match="'names' must hold numbers"):
        TransitionDataset.from_dict({**counted([0, 0]), "names": ["a", "b"]})


def test_whole_numbers_beyond_64_signed_bits_are_refused_instead_of_turning_negative(counted):
    with pytest.raises(ValueError, match=r"'ids' holds 9223372036854775808, which does not fit into int64"):
        TransitionDataset.from_dict({**counted([0, 0]), "ids": np.array([1, 2**63], np.uint64)})


def test_observations_without_numbers_are_rejected(counted):
    values = {**counted([0, 0]), "obs": np.zeros((2, 0), np.float32)}
    with pytest.raises(ValueError, match=r"obs are empty: their shape is \(2, 0\)"):
        TransitionDataset.from_dict(values)


def test_float64_and_one_number_in_brackets_become_plain_float32(counted):
    values = {**counted([0, 0]), "rewards": np.array([[1.0], [2.0]]), "obs": np.zeros((2, 1))}
    columns = TransitionDataset.from_dict(values).columns
    assert columns["rewards"].tolist() == [1.0, 2.0]
    assert {column.dtype for column in columns.values()} == {torch.float32}


def test_tensors_of_any_precision_are_taken_as_arrays_are(counted):
    tensors = {name: torch.from_numpy(column) for name, column in counted([1, 2, 3], dones=(2,)).items()}
    changed = {"rewards": tensors["rewards"].bfloat16().requires_grad_(), "obs": tensors["obs"].double()}
    dataset = TransitionDataset.from_dict({**tensors, **changed})
    assert dataset.fingerprint() == TransitionDataset.from_dict(tensors).fingerprint()
    assert dataset.columns["next_obs"].data_ptr() == tensors["next_obs"].data_ptr()


def test_pixels_stay_uint8():
    frames = np.zeros((4, 3, 8, 8), np.uint8)
    dataset = TransitionDataset.from_dict(
        {"obs": frames, "next_obs": frames, "actions": [0, 1, 2, 0], "rewards": np.zeros(4), "dones": np.zeros(4)}
    )
    assert dataset.columns["obs"].dtype == torch.uint8
    assert dataset.spec == EnvSpec((3, 8, 8), "discrete", 3, "uint8")


def test_a_death_at_the_time_limit_is_a_death(counted):
    columns = TransitionDataset.from_dict(counted([0, 0, 0], dones=(2,), truncated=(2,))).columns
    assert columns["dones"].tolist() == [0, 0, 1]
    assert columns["truncated"].tolist() == [0, 0, 0]


def test_a_time_limit_is_not_a_terminal_state(counted):
    columns = TransitionDataset.from_dict(counted([0, 0, 0], truncated=(2,))).columns
    assert columns["dones"].sum() == 0
    assert columns["truncated"].tolist() == [0, 0, 1]


def test_an_observation_of_another_shape_than_expected_names_both(counted):
    message = (
        r"obs have shape \(1,\) per row, expected \(3,\), as in the environment or in the agent's training data; pass"
    )
    with pytest.raises(ValueError, match=message):
        TransitionDataset.from_dict(counted([0, 0]), spec=PENDULUM)


def test_the_constructor_refuses_actions_that_are_not_in_library_units(counted):
    columns = TransitionDataset.from_dict(counted([0, 0])).columns
    with pytest.raises(ValueError, match=r"must be in \[-1, 1\], the largest magnitude is 2"):
        TransitionDataset({**columns, "actions": columns["actions"] * 2})


def test_episodes_end_at_deaths_at_time_limits_and_with_the_data(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4, 5, 6], dones=(1,), truncated=(3,)))
    assert dataset.episode_offsets.tolist() == [0, 2, 4]
    assert dataset.episode_returns().tolist() == [3, 7, 11]


def test_returns_are_summed_in_double_precision():
    rewards = np.array([2**24, 1], np.float32)  # float32 has no number between 2**24 and 2**24 + 2
    assert episode_returns(rewards, np.array([False, True])).tolist() == [2**24 + 1]


def test_rewards_are_scaled_then_shifted_and_the_original_stays(counted):
    dataset = TransitionDataset.from_dict(counted([0, 1]))
    assert dataset.with_reward_transform(scale=10, shift=-5).columns["rewards"].tolist() == [-5, 5]
    assert dataset.columns["rewards"].tolist() == [0, 1]


def test_rewards_are_clipped_after_scale_and_shift(counted):
    dataset = TransitionDataset.from_dict(counted([-3, 0, 1]))
    assert dataset.with_reward_transform(10, -5, clip=(-10, 2)).columns["rewards"].tolist() == [-10, -5, 2]


def test_return_range_rewards_span_a_thousand_between_worst_and_best_episode(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4, 5], dones=(1, 4)))  # returns 3 and 12
    returns = dataset.with_reward_transform(dataset.return_range_scale()).episode_returns()
    assert (returns[1] - returns[0]).item() == pytest.approx(1000)


def test_return_range_rewards_need_episodes_that_differ(counted):
    with pytest.raises(ValueError, match="the return range is 0"):
        TransitionDataset.from_dict(counted([1, 1], dones=(0, 1))).return_range_scale()


def test_optional_columns_survive_every_transform(counted):
    optional = {
        "next_actions": np.array([[0.5], [0.0]]),
        "returns_to_go": np.array([3, 2]),
        "weights": np.array([7, 8]),
    }
    dataset = TransitionDataset.from_dict({**counted([1, 2], dones=(1,)), **optional})
    changed = dataset.with_columns(obs=torch.zeros(2, 1)).with_reward_transform(scale=2).to("cpu")
    assert changed.columns["next_actions"].tolist() == [[0.5], [0.0]]
    assert changed.columns["weights"].tolist() == [7, 8]
    assert changed.columns["returns_to_go"].tolist() == [6, 4]


def test_explicit_episode_ends_survive_transforms(counted):
    columns = TransitionDataset.from_dict(counted([1, 2, 3])).columns
    dataset = TransitionDataset(columns, episode_ends=torch.tensor([True, False, False]))
    assert dataset.with_reward_transform(scale=2).episode_returns().tolist() == [2, 10]


# A terminal episode is exact: 5, then -5 + 0.99 * 5, then -5 + 0.99 * -0.05.
def test_returns_to_go_of_a_terminated_episode_are_the_discounted_sums(counted):
    dataset = TransitionDataset.from_dict(counted([-5, -5, 5], dones=(2,))).with_discounted_returns_to_go(0.99)
    assert dataset.columns["returns_to_go"].tolist() == pytest.approx([-5.0495, -0.05, 5.0])


def test_returns_to_go_do_not_flow_from_one_episode_into_another(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 4, 8], dones=(1, 3))).with_discounted_returns_to_go(0.5)
    assert dataset.columns["returns_to_go"].tolist() == [2, 2, 8, 8]


@pytest.mark.parametrize("ending", ["time limit", "end of data"])
def test_constant_rewards_of_a_cut_episode_are_worth_as_much_as_if_they_never_ended(counted, ending):
    values = counted([-5, -5, -5], truncated=(2,) if ending == "time limit" else ())
    dataset = TransitionDataset.from_dict(values).with_discounted_returns_to_go(0.99)
    assert dataset.columns["returns_to_go"].tolist() == pytest.approx([-500] * 3)


# Future: (4 + 0.5 * 2) / (1 - 0.25) = 20/3, the recent reward weighing twice the other; then 4 + 10/3 and 2 + 11/3.
def test_the_future_of_a_cut_episode_resembles_its_recent_past(counted):
    dataset = TransitionDataset.from_dict(counted([2, 4], truncated=(1,))).with_discounted_returns_to_go(0.5)
    assert dataset.columns["returns_to_go"].tolist() == pytest.approx([17 / 3, 22 / 3])


def returns_by_definition(rewards, ends, dones, gamma):
    """Row by row from the last: the reward, and the discounted rest of the episode."""
    returns, last = np.zeros(len(rewards)), len(rewards) - 1
    starts = [0, *(np.flatnonzero(ends[:-1]) + 1)]
    for start, stop in zip(starts, [*starts[1:], last + 1], strict=True):
        episode = rewards[start:stop]
        weights = gamma ** np.arange(len(episode))
        to_go = 0.0 if dones[stop - 1] or gamma == 1 else weights @ episode[::-1] / (1 - gamma ** len(episode))
        for row in range(stop - 1, start - 1, -1):
            returns[row] = to_go = rewards[row] + gamma * to_go
    return returns


@pytest.mark.parametrize("gamma", [0.0, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("length", [1, 2, 37, 1000])
def test_returns_to_go_agree_with_their_definition_on_episodes_of_any_length(counted, gamma, length):
    rng = np.random.default_rng(length)
    values = counted(rng.normal(size=1000).tolist())
    values["dones"] = np.arange(1000) % (2 * length) == length - 1
    values["truncated"] = np.arange(1000) % (2 * length) == 2 * length - 1
    dataset = TransitionDataset.from_dict(values)
    expected = returns_by_definition(
        values["rewards"].astype(float), dataset.episode_ends.numpy(), values["dones"], gamma
    )
    returns = dataset.with_discounted_returns_to_go(gamma).columns["returns_to_go"].numpy()
    np.testing.assert_allclose(returns, expected, rtol=1e-6, atol=1e-6)


def test_returns_to_go_of_an_episode_longer_than_a_block_agree_with_their_definition():
    rewards, ends = np.random.default_rng(0).normal(size=2 * BLOCK + 77), np.zeros(2 * BLOCK + 77, bool)
    ends[[BLOCK - 3, -1]] = True
    expected = returns_by_definition(rewards, ends, ends, 0.9999)
    np.testing.assert_allclose(returns_to_go(rewards, ends, ends, 0.9999), expected, rtol=1e-9, atol=1e-9)


def test_undiscounted_returns_to_go_of_a_cut_episode_end_with_the_data(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2], truncated=(1,))).with_discounted_returns_to_go(1.0)
    assert dataset.columns["returns_to_go"].tolist() == [3, 2]


def test_returns_to_go_follow_a_later_reward_transform(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4], dones=(1,), truncated=(3,)))
    before = dataset.with_reward_transform(10, -5).with_discounted_returns_to_go(0.9)
    after = dataset.with_discounted_returns_to_go(0.9).with_reward_transform(10, -5)
    assert torch.equal(before.columns["returns_to_go"], after.columns["returns_to_go"])


def test_returns_to_go_of_unknown_discount_cannot_follow_a_shift(counted):
    dataset = TransitionDataset.from_dict({**counted([1, 2]), "returns_to_go": [3.0, 2.0]})
    with pytest.raises(ValueError, match="with_discounted_returns_to_go"):
        dataset.with_reward_transform(shift=1)


def test_returns_to_go_of_unknown_discount_cannot_follow_a_clip(counted):
    dataset = TransitionDataset.from_dict({**counted([1, 2]), "returns_to_go": [3.0, 2.0]})
    with pytest.raises(ValueError, match="cannot shift or clip rewards"):
        dataset.with_reward_transform(clip=(0, 1))


def test_a_discount_outside_0_to_1_is_rejected(counted):
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], got 1.5"):
        TransitionDataset.from_dict(counted([1])).with_discounted_returns_to_go(1.5)


def test_a_sampled_row_keeps_its_columns_together(counted):
    batch = TransitionDataset.from_dict(counted(list(range(9)))).sample(64)
    assert torch.equal(batch["obs"].squeeze(1), batch["rewards"])  # both count the rows here
    assert torch.equal(batch["next_obs"], batch["obs"] + 1)


def test_every_row_is_drawn_about_equally_often(counted):
    rewards = TransitionDataset.from_dict(counted(list(range(4)))).sample(40_000)["rewards"]
    counts = rewards.long().bincount(minlength=4)  # 10000 each, standard deviation 87
    assert ((counts - 10_000).abs() < 500).all()


def test_members_lead_the_shape_of_a_batch(counted):
    batch = TransitionDataset.from_dict(counted([0, 1, 2])).sample(5, members=(2,))
    assert batch["obs"].shape == (2, 5, 1)
    assert batch["rewards"].shape == (2, 5)


def test_sampling_leaves_the_global_generator_alone_and_follows_its_own_seed(counted):
    dataset = TransitionDataset.from_dict(counted(list(range(100))))
    dataset.seed(7)
    before = torch.get_rng_state()
    first = dataset.sample(32)["rewards"]
    assert torch.equal(torch.get_rng_state(), before)
    dataset.seed(7)
    assert torch.equal(dataset.sample(32)["rewards"], first)


def test_a_saved_state_gives_the_same_draws(counted):
    dataset, twin = (TransitionDataset.from_dict(counted(list(range(100)))) for _ in range(2))
    dataset.seed(3)
    dataset.sample(8)
    twin.load_state_dict(dataset.state_dict())
    assert torch.equal(dataset.sample(32)["rewards"], twin.sample(32)["rewards"])


def test_the_fingerprint_tells_values_names_and_shapes_apart(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2]))
    changed = [
        dataset.with_reward_transform(scale=2),
        dataset.with_columns(weights=torch.ones(2)),
        dataset.with_columns(obs=dataset.columns["obs"].unsqueeze(2)),
    ]
    assert dataset.fingerprint() == TransitionDataset.from_dict(counted([1, 2])).fingerprint()
    assert len({dataset.fingerprint(), *(other.fingerprint() for other in changed)}) == 4
