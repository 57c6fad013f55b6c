"""OGBench's arrays: `terminals` ends a trajectory, a mask of 0 means that no reward follows."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import check_dataset, load_transition_dataset, read_columns, save_transition_dataset
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.datasets.episode_bootstrap import EpisodeBootstrap
from rl_training.data.datasets.validation import DatasetError
from rl_training.experiment.ope.importance import Episodes
from rl_training.experiment.ope.single import first_returns

# Two trajectories of three steps: states 0 1 2 3 and 10 11 12 13.
RAW = {
    "observations": np.array([[0], [1], [2], [3], [10], [11], [12], [13]], np.float32),
    "actions": np.linspace(-1, 1, 8, dtype=np.float32)[:, None],
    "terminals": np.array([0, 0, 0, 1, 0, 0, 0, 1], np.float32),
}
STARTS = [0, 1, 2, 4, 5, 6]  # the last row of a trajectory has no next observation
REGULAR = {
    **{name: RAW[name][STARTS] for name in ("observations", "actions")},
    "next_observations": RAW["observations"][[1, 2, 3, 5, 6, 7]],
    "terminals": np.array([0, 0, 1, 0, 0, 1], np.float32),
    "rewards": np.array([-1, 0, -1, -1, -1, 0], np.float32),
    "masks": np.array([1, 0, 1, 1, 1, 0], np.float32),
}
COMPACT = {
    **RAW,
    "terminals": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.float32),
    "valids": np.array([1, 1, 1, 0, 1, 1, 1, 0], np.float32),
    "rewards": np.array([-1, 0, -1, -1, -1, -1, 0, 0], np.float32),
    "masks": np.array([1, 0, 1, 1, 1, 1, 0, 0], np.float32),
}


def flags(dataset) -> list[list[float]]:
    return [dataset.columns[name].tolist() for name in ("dones", "truncated")]


def test_a_mask_of_0_terminates_and_a_trajectory_end_with_mask_1_is_truncated(write):
    dataset = load_transition_dataset(write(REGULAR))
    assert flags(dataset) == [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]]
    assert dataset.episode_offsets.tolist() == [0, 2, 3]
    assert dataset.columns["next_obs"].squeeze(1).tolist() == [1, 2, 3, 11, 12, 13]
    assert dataset.columns.keys().isdisjoint({"masks", "terminals"})


def test_data_check_counts_them_as_terminals_and_timeouts(write):
    report = inspect_source(write(REGULAR))
    assert (report.terminals, report.timeouts, report.trainable) == (2, 1, True)
    stored_as = {name: column.stored_as for name, column in report.columns.items()}
    assert (stored_as["dones"], stored_as["truncated"]) == ("masks", "terminals")


def test_raw_files_lose_the_last_row_of_each_trajectory(write):
    stored = read_columns(write(RAW), columns={"rewards": "0"})
    assert stored.columns["obs"].squeeze(1).tolist() == [0, 1, 2, 10, 11, 12]
    assert stored.columns["next_obs"].squeeze(1).tolist() == [1, 2, 3, 11, 12, 13]
    assert stored.columns["truncated"].tolist() == [0, 0, 1, 0, 0, 1]
    assert not stored.columns["dones"].any()
    assert stored.rows == 8


def test_a_raw_file_with_masks_keeps_the_rows_that_follow_a_terminal_one(write):
    masked = {**RAW, "masks": np.array([1, 0, 1, 1, 1, 1, 0, 0]), "rewards": np.arange(8.0)}
    dataset = load_transition_dataset(write(masked))
    assert flags(dataset) == [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]]
    assert dataset.columns["next_obs"].squeeze(1).tolist() == [1, 2, 3, 11, 12, 13]
    assert dataset.columns["rewards"].tolist() == [0, 1, 2, 4, 5, 6]


def test_a_compact_file_equals_a_regular_one(write):
    compact = load_transition_dataset(write(COMPACT))
    assert compact.fingerprint() == load_transition_dataset(write(REGULAR)).fingerprint()


def test_missing_rewards_are_reported_with_the_options_that_supply_them(write):
    path = write(RAW)
    report = inspect_source(path)
    assert (report.rows, report.transitions, report.timeouts, report.trainable) == (8, 6, 2, False)
    (finding,) = report.findings
    assert (finding.kind, finding.severity, finding.text) == ("no_rewards", "error", "the file has no rewards")
    assert "--columns rewards=NAME" in finding.fix
    assert "--columns rewards=0" in finding.fix
    assert "singletask" in finding.fix
    assert json.dumps(report.to_json())
    with pytest.raises(DatasetError, match=r"the file has no rewards; name their column with --columns rewards=NAME"):
        load_transition_dataset(path)


def test_rewards_come_from_a_named_column_or_are_one_number(write):
    path = write({**RAW, "success": np.arange(8, dtype=np.float32)})
    assert load_transition_dataset(path, columns={"rewards": "success"}).columns["rewards"].tolist() == STARTS
    dataset = load_transition_dataset(path, columns={"rewards": "-1"})
    assert dataset.columns["rewards"].tolist() == [-1] * 6
    assert "success" in dataset.columns


def test_timeouts_beside_terminals_are_still_those_of_d4rl(write):
    columns = {**REGULAR, "timeouts": np.array([0, 0, 1, 0, 0, 0], np.float32)}
    assert flags(load_transition_dataset(write(columns))) == [[0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]]


def test_terminals_alone_keep_the_meaning_of_d4rl(write):
    columns = {name: column for name, column in REGULAR.items() if name != "masks"}
    assert flags(load_transition_dataset(write(columns)))[0] == REGULAR["terminals"].tolist()


def test_columns_that_the_user_names_override_the_meaning_of_ogbench(write):
    dataset = load_transition_dataset(write(REGULAR), columns={"dones": "terminals"})
    assert flags(dataset)[0] == REGULAR["terminals"].tolist()


def test_a_mask_that_is_neither_0_nor_1_is_refused(write):
    with pytest.raises(ValueError, match=r"data\.\w+: column 'masks' must hold 0 or 1, row 1 holds 0\.5"):
        load_transition_dataset(write({**REGULAR, "masks": np.array([1, 0.5, 1, 1, 1, 0], np.float32)}))


def test_a_goal_that_is_held_for_several_rows_is_no_doubled_terminal(write):
    held = {**REGULAR, "masks": np.array([0, 0, 1, 0, 0, 1], np.float32)}
    path = write(held)
    assert not [each for each in check_dataset(load_transition_dataset(path)) if "terminal rows" in each]


# Five trajectories of four steps; each reaches its goal in its second step and goes on.
MANY: dict[str, Any] = {
    "observations": np.array([[10 * number + step] for number in range(5) for step in range(4)], np.float32),
    "next_observations": np.array([[10 * number + step + 1] for number in range(5) for step in range(4)], np.float32),
    "actions": np.zeros((20, 1), np.float32),
    "terminals": np.tile([0.0, 0, 0, 1], 5),
    "rewards": np.tile([-1.0, 0, -1, -1], 5),
    "masks": np.tile([1.0, 0, 1, 1], 5),
}


def trajectories_of(dataset) -> set[int]:
    return {int(value) // 10 for value in dataset.columns["obs"][:, 0]}


def test_the_undiscounted_return_of_a_trajectory_ends_at_its_first_goal(write):
    rewards = np.arange(20, dtype=np.float32)
    dataset = load_transition_dataset(write({**MANY, "rewards": rewards}))
    assert first_returns(dataset).tolist() == [0 + 1, 4 + 5, 8 + 9, 12 + 13, 16 + 17]


def test_the_parts_of_a_trajectory_stay_on_one_side_of_a_split(write):
    dataset = load_transition_dataset(write(MANY))
    assert (len(dataset.episode_offsets), dataset.first_rows.tolist()) == (10, [0, 4, 8, 12, 16])
    for split in (dataset.split(0.4, seed=seed) for seed in range(3)):
        sides = [trajectories_of(part) for part in split]
        assert ([len(side) for side in sides], sides[0] & sides[1]) == ([3, 2], set())
        assert [len(part.first_rows) for part in split] == [3, 2]


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_the_files_of_a_split_keep_the_trajectories(write, tmp_path, suffix):
    _, part = load_transition_dataset(write(MANY)).split(0.4, by="time")
    save_transition_dataset(part, tmp_path / f"test.{suffix}")
    again = load_transition_dataset(tmp_path / f"test.{suffix}")
    assert (again.first_rows.tolist(), again.fingerprint()) == ([0, 4], part.fingerprint())
    assert trajectories_of(again.split(0.5, by="time").test) == {4}


def test_several_files_keep_their_trajectories(tmp_path):
    np.savez(tmp_path / "a.npz", **MANY)
    np.savez(tmp_path / "b.npz", **{**MANY, "masks": np.ones(20)})  # no goal is reached
    dataset = load_transition_dataset([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert dataset.first_rows.tolist() == [*range(0, 40, 4)]


def test_an_estimate_starts_in_the_first_states_of_trajectories(write):
    dataset = load_transition_dataset(write(MANY))
    assert dataset.trajectories is not None
    bootstrap = EpisodeBootstrap(dataset, 3)
    assert bootstrap.resamples.shape == (3, 5)
    episodes = Episodes(dataset, 0.5)
    assert (episodes.count, episodes.steps) == (5, 2)  # the return of a trajectory ends with the first terminal row
    assert episodes.grid(dataset.columns["rewards"]).tolist() == [[-1, 0]] * 5


def test_files_without_terminal_rows_within_a_trajectory_have_no_trajectories(write):
    dataset = load_transition_dataset(write({**MANY, "masks": np.tile([1.0, 1, 1, 0], 5)}))
    assert dataset.trajectories is None
    assert torch.equal(dataset.first_rows, dataset.episode_offsets)
