"""Ends and rewards in the last rows of episodes, which tables store in several ways."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rl_training.data import load_transition_dataset
from rl_training.data.datasets.checks import inspect_source


def table(path, **changed) -> str:
    """Two episodes of three rows; the last one has the final observation, and neither an action nor a reward."""
    columns = {"episode": [0, 0, 0, 1, 1, 1], "obs": [0.0, 1, 2, 3, 4, 5], "action": [0, 1, None] * 2}
    columns |= {"reward": [1.0, 2, None, 3, 4, None], "done": [0, 0, 1] * 2}
    pd.DataFrame({**columns, **changed}).to_csv(path / "log.csv", index=False)
    return str(path / "log.csv")


def kinds(source: str) -> list[str]:
    return [each.kind for each in inspect_source(source).findings]


def test_a_row_before_the_final_observation_terminates(tmp_path):
    dataset = load_transition_dataset(table(tmp_path))
    assert dataset.columns["obs"].flatten().tolist() == [0, 1, 3, 4]
    assert dataset.columns["next_obs"][[0, 2]].flatten().tolist() == [1, 4]
    assert dataset.columns["rewards"].tolist() == [1, 2, 3, 4]
    assert dataset.columns["dones"].tolist() == [0, 1, 0, 1]
    assert dataset.columns["truncated"].tolist() == [0, 0, 0, 0]
    assert dataset.notes[0].startswith("2 terminal rows without an action hold the last observation of an episode")


def test_named_actions_and_several_columns_may_be_missing_in_final_rows(tmp_path):
    named = load_transition_dataset(table(tmp_path, action=["on", "off", None] * 2))
    box = load_transition_dataset(
        table(tmp_path, action=0.5, action_1=[0.5, 0.2, None] * 2), columns={"actions": "action_1"}
    )
    assert named.columns["dones"].tolist() == box.columns["dones"].tolist() == [0, 1, 0, 1]


def test_a_missing_action_among_other_terminal_rows_is_an_error(tmp_path):
    source = table(tmp_path, action=[0, 1, None, 0, 1, 1], reward=1.0)
    with pytest.raises(ValueError, match="'actions' is NaN or infinite in 1 of 6 rows, the first is row 2"):
        load_transition_dataset(source)


def test_flags_other_than_0_and_1_are_still_refused(tmp_path):
    with pytest.raises(ValueError, match="column 'done' must hold 0 or 1, row 0 holds 2"):
        load_transition_dataset(table(tmp_path, done=[2, 0, 1, 0, 0, 1]))


def test_rewards_beside_the_final_observation_give_a_warning(tmp_path):
    assert "lost_rewards" not in kinds(table(tmp_path))
    assert "lost_rewards" in kinds(table(tmp_path, reward=[0.0, 1, 2, 0, 3, 4]))


def test_rewards_beside_the_final_observation_give_one_warning(tmp_path):
    source = table(tmp_path, reward=[0.0, 0, 5, 0, 0, 5])
    assert kinds(source).count("lost_rewards") == 1  # the end is marked already
    assert sum("rewards" in note for note in load_transition_dataset(source).notes) == 1


def test_files_with_and_without_an_action_in_terminal_rows_are_not_final_observations(tmp_path):
    for file, last in enumerate([1, None, 0]):
        columns = {"episode": file, "obs": [0.0, 1, 2], "action": [0, 1, last], "reward": 1.0, "done": [0, 0, 1]}
        pd.DataFrame(columns).to_csv(tmp_path / f"{file}.csv", index=False)
    with pytest.raises(
        ValueError, match=r"'actions' is NaN or infinite in 1 of 9 rows, the first is row 2 of .*1\.csv"
    ):
        load_transition_dataset(f"{tmp_path}/*.csv")
    assert load_transition_dataset([tmp_path / "1.csv"] * 2).columns["dones"].tolist() == [0, 1, 0, 1]


def test_a_file_of_arrays_beside_a_table_does_not_change_its_final_rows(tmp_path):
    rewards, truncated = np.ones(2), np.zeros(2)
    np.savez(
        tmp_path / "log.npz",
        obs=np.zeros(2),
        actions=np.array([0, 1]),
        rewards=rewards,
        dones=[0, 1],
        truncated=truncated,
    )
    assert load_transition_dataset([table(tmp_path), tmp_path / "log.npz"]).columns["dones"].tolist() == [0, 1] * 3


def test_a_terminal_row_with_a_part_of_its_action_is_not_a_final_observation(tmp_path):
    source = table(tmp_path, action=None, action_0=0.5, action_1=[0.5, 0.2, None] * 2, reward=1.0)
    columns = {"actions": "action_0,action_1"}
    with pytest.raises(ValueError, match=r"'actions' \(action_1\) is NaN or infinite in 2 of 6 rows"):
        load_transition_dataset(source, columns=columns)


def test_a_reward_at_the_end_of_episodes_without_a_mark_gives_a_warning(tmp_path):
    length, rows = 10, np.arange(100)
    columns = {"episode": rows // length, "obs": rows * 1.0, "action": rows % 2}
    at_end = pd.DataFrame({**columns, "reward": np.where(rows % length == length - 1, 5.0, 0.1)})
    for name, rewards in {"end": at_end["reward"], "all": 1.0}.items():
        at_end.assign(reward=rewards).to_csv(tmp_path / f"{name}.csv", index=False)
        at_end.assign(reward=rewards).to_parquet(tmp_path / f"{name}.parquet")
    assert "lost_rewards" in kinds(str(tmp_path / "end.csv"))
    assert "lost_rewards" in kinds(str(tmp_path / "end.parquet"))
    assert "lost_rewards" not in kinds(str(tmp_path / "all.csv"))
    notes = load_transition_dataset(tmp_path / "end.csv").notes
    assert any("with them more than 20% of the rewards" in note for note in notes)


def test_many_files_share_a_note_about_rows_left_out(tmp_path):
    for file in range(4):
        columns = {"episode": file, "obs": [0.0, 1, 2], "action": [0, 1, 0], "reward": 1.0}
        pd.DataFrame(columns).to_csv(tmp_path / f"{file}.csv", index=False)
    two = load_transition_dataset([tmp_path / "0.csv", tmp_path / "1.csv"]).notes
    assert [note.split(" (")[0] for note in two] == ["1 row is left out, because no next observation is known"] * 2
    four = load_transition_dataset(f"{tmp_path}/*.csv").notes
    assert list(four) == ["4 rows in 4 files are left out, because no next observation is known"]


def test_arrays_of_whole_episodes_are_refused_with_the_shape_to_use(tmp_path):
    shape = (4, 5)
    arrays: dict[str, Any] = {
        "obs": np.zeros((*shape, 3)),
        "actions": np.zeros((*shape, 2)),
        "rewards": np.zeros(shape),
    }
    np.savez(tmp_path / "episodes.npz", **arrays, dones=np.zeros(shape), truncated=np.zeros(shape))
    with pytest.raises(ValueError, match=r"column 'dones' has shape \(4, 5\), but every row is one step; reshape"):
        load_transition_dataset(tmp_path / "episodes.npz")
