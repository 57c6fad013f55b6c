"""Public datasets, read as they are published."""

import numpy as np
import pytest
import torch

from rl_training.data import check_dataset, load_transition_dataset
from rl_training.data.datasets.validation import find_breaks


@pytest.mark.parametrize(
    ("name", "rows", "deaths", "time_limits"),
    [
        # 99866 and 99500 rows in the files; the last row of each timed-out episode has no known successor.
        ("classic/cartpole_replay.h5", 99866 - 134, 1448, 134),
        ("classic/pendulum_replay.h5", 99500 - 500, 0, 500),
        # D4RL's own loader gives 1400 and 398 as well; where successors are stored no row is lost.
        ("d4rl_heads/antmaze-umaze-v0.hdf5", 1400, 0, 2),
        ("d4rl_heads/pen-human-v1.hdf5", 398, 0, 2),
        ("d4rl_heads/halfcheetah_medium_replay-v1.hdf5", 2000, 0, 2),
        ("d4rl_heads/hopper_medium-v2.hdf5", 911, 2, 0),
        ("experts/cartpole.npz", 26964, 42, 15),
        ("experts/pendulum.npz", 11200, 0, 56),
    ],
)
def test_rows_deaths_and_time_limits(shared_data, name, rows, deaths, time_limits):
    dataset = load_transition_dataset(shared_data / name)
    assert len(dataset) == rows
    assert dataset.columns["dones"].sum() == deaths
    assert dataset.columns["truncated"].sum() == time_limits
    assert len(dataset.episode_offsets) == deaths + time_limits
    assert not any("does not match the next row" in warning for warning in check_dataset(dataset))


def test_cartpole_dies_only_where_its_pole_falls(shared_data):
    columns = load_transition_dataset(shared_data / "classic/cartpole_replay.h5").columns
    # The file marks two rows a death; rows 33 and 34 are the first pair, and the pole of row 34 still stands.
    assert columns["dones"][32:36].tolist() == [0, 0, 1, 0]
    assert torch.equal(columns["next_obs"][33], columns["obs"][34])
    assert torch.equal(columns["next_obs"][34], columns["obs"][34])


def test_pendulum_actions_of_up_to_2_are_scaled_to_the_unit_box(shared_data):
    dataset = load_transition_dataset(shared_data / "classic/pendulum_replay.h5")
    assert dataset.spec.action_high == (2.0,)
    assert dataset.columns["actions"].abs().max() == 1


def test_hoppers_death_keeps_the_successor_that_the_file_stores(shared_data):
    columns = load_transition_dataset(shared_data / "d4rl_heads/hopper_medium-v2.hdf5").columns
    jumps = np.flatnonzero(find_breaks(columns["obs"].numpy(), columns["next_obs"].numpy()))
    assert jumps.tolist() == [469]
    assert columns["dones"][469] == 1


def test_antmaze_failures_are_worth_the_penalty_for_ever(shared_data):
    dataset = load_transition_dataset(shared_data / "d4rl_heads/antmaze-umaze-v0.hdf5")
    returns = dataset.with_reward_transform(10, -5).with_discounted_returns_to_go(0.99).columns["returns_to_go"]
    assert torch.allclose(returns, torch.tensor(-500.0))
