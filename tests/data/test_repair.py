"""Data that is surely wrong is refused with its column, its row and the word that accepts it, or mended with that."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, save_transition_dataset
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.datasets.validation import drop_rows
from rl_training.experiment.ope.importance import Episodes
from rl_training.experiment.ope.policies import PolicyActions, with_policy_actions
from rl_training.experiment.ope.single import first_returns
from rl_training.types import Action


class Still:
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.zeros(len(obs), 1))


@pytest.fixture
def load(tmp_path):
    def load(rows, **options):
        np.savez(tmp_path / "data.npz", **rows)
        return load_transition_dataset(tmp_path / "data.npz", **options)

    return load


def test_a_file_with_nan_is_refused_by_column_row_and_flag(load, counted):
    sentence = r"data\.npz: column 'rewards' is NaN or infinite in 1 of 3 rows, the first is row 1; drop .* --allow nan"
    with pytest.raises(ValueError, match=sentence):
        load(counted([1, np.nan, 3], dones=(2,)))


def test_rows_have_their_numbers_in_the_file(load, counted):
    columns = counted([1, 2, 3, np.nan, 5], truncated=(1, 4))
    del columns["next_obs"]
    with pytest.raises(ValueError, match="in 1 of 3 rows, the first is row 3; "):
        load(columns)


def test_what_is_wrong_with_no_row_counts_none(load, counted):
    columns = counted([1, 2, 3], truncated=(2,))
    del columns["next_obs"]
    with pytest.raises(ValueError, match=r"got \[3, -3\]$"):
        load(columns, action_range=(3, -3))


# Row 2 is of no use, and row 1 has lost its future; row 3 begins another episode.
def test_rows_with_nan_are_left_out_and_the_episode_ends_before_them(load, counted):
    columns = load(counted([1, 2, np.nan, 4, 5], dones=(4,)), allow=["nan"]).columns
    assert columns["rewards"].tolist() == [1, 2, 4, 5]
    assert columns["truncated"].tolist() == [0, 1, 0, 0]
    assert columns["dones"].tolist() == [0, 0, 0, 1]


def test_a_death_before_a_row_with_nan_stays_a_death(load, counted):
    columns = load(counted([1, np.nan, 3], dones=(0,), truncated=(2,)), allow=["nan"]).columns
    assert (columns["dones"].tolist(), columns["truncated"].tolist()) == ([1, 0], [0, 1])


def test_an_end_before_a_dropped_row_is_not_truncated_too():
    columns = {"dones": np.array([1.0, 0, 0, 0]), "truncated": np.zeros(4)}
    left = drop_rows(columns, np.array([False, True, False, True]))
    assert (left["dones"].tolist(), left["truncated"].tolist()) == ([1, 0], [0, 1])


def test_an_observation_that_is_nan_costs_the_row_that_leads_to_it_too(load, counted):
    columns = counted([1, 2, 3, 4, 5], truncated=(4,))
    columns["obs"][2] = np.nan
    del columns["next_obs"]
    rows = load(columns, allow=["nan"]).columns
    assert rows["obs"].squeeze(1).tolist() == [0, 3]
    assert rows["next_obs"].squeeze(1).tolist() == [1, 4]
    assert rows["truncated"].tolist() == [1, 1]


def test_rows_that_are_all_wrong_leave_nothing(load, counted):
    with pytest.raises(ValueError, match="no rows are left: all 2 would be dropped"):
        load(counted([np.nan, np.inf], dones=(1,)), allow=["nan"])


def test_actions_out_of_range_are_refused_or_clipped(load, counted):
    columns = {**counted([1, 2], dones=(1,)), "actions": np.array([[1.0], [5.0]])}
    with pytest.raises(ValueError, match=r"row 1 with 5, allowed is -2 to 2.*--allow out_of_range"):
        load(columns, action_range=(-2, 2))
    clipped = load(columns, action_range=(-2, 2), allow=["out_of_range"])
    assert clipped.columns["actions"].tolist() == [[0.5], [1.0]]


def test_a_file_without_any_episode_end_is_refused_or_one_episode(load, counted):
    with pytest.raises(ValueError, match=r"no row ends an episode.* all 3 rows as one with --allow no_episode_end"):
        load(counted([1, 2, 3]))
    assert load(counted([1, 2, 3]), allow=["no_episode_end"]).episode_offsets.tolist() == [0]


def test_a_file_without_columns_that_tell_of_ends_is_refused_even_where_rows_jump(load, counted):
    columns = counted([1, 2, 3], truncated=(1,))
    del columns["dones"], columns["truncated"]
    with pytest.raises(ValueError, match="--allow no_episode_end"):
        load(columns)
    assert load(columns, allow=["no_episode_end"]).columns["truncated"].tolist() == [0, 1, 0]


def test_a_jump_within_an_episode_is_refused_or_cut(load, counted):
    columns = counted([1, 2, 3, 4], truncated=(1, 3))
    columns["truncated"][1] = False  # though row 2 starts at 10
    with pytest.raises(ValueError, match=r"next_obs does not match the next row in 1 of 4 rows, the first is row 1"):
        load(columns)
    assert load(columns, allow=["crossing"]).columns["truncated"].tolist() == [0, 1, 0, 1]


def test_a_cut_row_that_leads_to_the_next_episodes_start_is_refused_or_left_out(load, counted):
    columns = counted([1, 2, 3, 4, 5], truncated=(2, 4))
    columns["next_obs"][2] = columns["obs"][3]  # what an environment that resets itself hands out
    with pytest.raises(ValueError, match=r"the first is row 2: it belongs to another episode, .*--allow crossing"):
        load(columns)
    rows = load(columns, allow=["crossing"]).columns
    assert rows["rewards"].tolist() == [1, 2, 4, 5]
    assert rows["truncated"].tolist() == [0, 1, 0, 1]


def test_a_state_that_recurs_within_episodes_may_also_be_the_next_start(load):
    states = np.array([0, 1, 0, 1, 0, 1], np.float32)[:, None]
    rows = {"obs": states, "next_obs": 1 - states, "actions": np.arange(6) % 2, "rewards": np.ones(6),
            "dones": np.array([0, 0, 0, 0, 0, 1]), "truncated": np.array([0, 1, 0, 0, 0, 0])}  # fmt: skip
    assert load(rows).columns["truncated"].tolist() == [0, 1, 0, 0, 0, 0]


def test_successors_taken_from_the_rows_cannot_lead_astray(load, counted):
    columns = counted([1, 2, 3, 4], truncated=(1, 3))
    columns["obs"][1] = columns["obs"][2]  # the first episode ends where the second starts
    del columns["next_obs"]
    assert load(columns).columns["next_obs"].squeeze(1).tolist() == [10, 11]


def test_an_unknown_fault_is_refused_with_the_known_ones(load, counted):
    with pytest.raises(ValueError, match="among nan, out_of_range, no_episode_end, crossing, got 'nans'"):
        load(counted([1], dones=(0,)), allow=["nans"])


def test_arrays_are_mended_as_files_are(counted):
    columns = {**counted([1, np.nan, 3], dones=(2,)), "actions": [[0.0], [0.0], [9.0]]}
    dataset = TransitionDataset.from_dict(columns, action_range=(-3, 3), allow=["nan", "out_of_range"])
    assert dataset.columns["rewards"].tolist() == [1, 3]
    assert dataset.columns["actions"].tolist() == [[0], [1]]
    assert dataset.columns["truncated"].tolist() == [1, 0]


def test_only_the_first_piece_of_an_episode_begins_in_a_first_state(load, counted):
    dataset = load(counted([1, 2, np.nan, 4, 5, 6, 7], truncated=(4, 6)), allow=("nan",))
    assert dataset.episode_offsets.tolist() == [0, 2, 4]  # rows 0-1 and 3-4 of the first episode, and the second one
    assert dataset.first_rows.tolist() == [0, 4]
    assert TransitionDataset.from_dict(counted([1, 2, 3], truncated=(0, 2))).first_rows.tolist() == [0, 1]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_files_written_here_keep_the_episodes_that_dropped_rows_cut(load, counted, tmp_path, suffix):
    dataset = load(counted([1, 1, np.nan, 1, 1, 1], dones=(3, 5)), allow=["nan"])
    save_transition_dataset(dataset, tmp_path / f"again.{suffix}")
    again = load_transition_dataset(tmp_path / f"again.{suffix}")
    assert (again.episode_offsets.tolist(), again.first_rows.tolist()) == ([0, 2, 3], [0, 3])
    assert again.fingerprint() == dataset.fingerprint()


def test_files_of_whole_episodes_have_no_further_column(load, counted, tmp_path):
    save_transition_dataset(load(counted([1, 1, 1], dones=(0, 2))), tmp_path / "whole.npz")
    assert "_trajectories" not in np.load(tmp_path / "whole.npz").files


def test_the_undiscounted_return_counts_all_pieces_of_a_cut_episode(load, counted):
    dataset = load(counted([1, 2, np.nan, 4, 8, 16], dones=(3, 5)), allow=["nan"])
    assert dataset.columns["rewards"].tolist() == [1, 2, 4, 8, 16]  # rows 0, 1 and 3 of the first episode
    assert first_returns(dataset).tolist() == [7, 24]
    longer = load(counted([1, 2, 4, 8, np.nan, 16], truncated=(2, 5)), allow=["nan"])
    assert first_returns(longer).tolist() == [7, 24]


def test_estimates_begin_in_the_first_states_of_cut_episodes(load, counted):
    dataset = load(counted([1, 1, np.nan, 1, 1, 1], dones=(3, 5)), allow=["nan"])
    rows = with_policy_actions(dataset, [PolicyActions(Still(), None, 0)], 0.5)
    assert rows.first_rows.tolist() == [0, 3]
    assert Episodes(rows, 0.5).count == 2


def test_faults_of_several_files_name_the_file_and_its_row(counted, tmp_path):
    for name, rewards in (("a", [1, 2, 3]), ("b", [1, np.nan, 3])):
        np.savez(tmp_path / f"{name}.npz", **counted(rewards, dones=(2,)))
    with pytest.raises(ValueError, match=r"the first is row 1 of \S*b\.npz; drop these rows"):
        load_transition_dataset(str(tmp_path / "*.npz"))
    report = inspect_source(str(tmp_path / "*.npz"))
    assert report.findings[0].text.endswith(f"the first is row 1 of {tmp_path / 'b.npz'}")
    (left_out,) = report.left_out
    assert (left_out.reason[-6:], left_out.rows.tolist()) == ("b.npz)", [1])


def test_faults_of_a_sorted_table_have_the_rows_and_the_column_of_the_file(tmp_path):
    cells = {"obs_0": [4.0, 3, 2, 1], "obs_1": [1, 1, np.nan, 1], "action": [0.0, 9, 0, 0], "reward": 1.0}
    frame = pd.DataFrame({**cells, "dones": [1, 0, 1, 0], "episode": [1, 1, 0, 0], "time": [2, 1, 4, 3]})
    frame.to_csv(tmp_path / "data.csv", index=False)
    options: dict[str, Any] = {"columns": {"time": "time"}, "action_range": (-1, 1)}
    with pytest.raises(
        ValueError, match=r"column 'obs' \(obs_1\) is NaN or infinite in 1 of \d rows, the first is row 2;"
    ):
        load_transition_dataset(tmp_path / "data.csv", **options)
    with pytest.raises(ValueError, match="the farthest is row 1 with 9"):
        load_transition_dataset(tmp_path / "data.csv", allow=["nan"], **options)
    assert "the farthest is row 1 with 9" in inspect_source(tmp_path / "data.csv", **options).findings[2].text


def test_flags_of_a_sorted_table_have_the_rows_of_the_file(tmp_path):
    frame = pd.DataFrame(
        {"obs": [4.0, 3, 2, 1], "action": 0, "reward": 1.0, "dones": [1, 0, np.nan, 0], "truncated": 0}
    )
    frame.assign(episode=[1, 1, 0, 0], time=[2, 1, 4, 3]).to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match="must hold 0 or 1, row 2 holds nan; 1 of 4 cells are empty"):
        load_transition_dataset(tmp_path / "data.csv", columns={"time": "time"})
