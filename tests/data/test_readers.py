"""Files become transitions that never lead from one episode into another."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, read_columns, save_npz
from rl_training.types import EnvSpec

WIDE = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-3.0,), action_high=(3.0,))
D4RL_NAMES = {"obs": "observations", "next_obs": "next_observations", "dones": "terminals", "truncated": "timeouts"}


@pytest.fixture
def load(write):
    """Writes columns under D4RL's names and reads them back, in either format."""

    def load(rows, *, without=(), **options):
        stored = {D4RL_NAMES.get(name, name): column for name, column in rows.items() if name not in without}
        return load_transition_dataset(write(stored), **options)

    return load


def test_stored_successors_keep_every_row(load, counted):
    columns = load(counted([1, 2, 3, 4, 5], dones=(1,), truncated=(3,))).columns
    assert columns["next_obs"].squeeze(1).tolist() == [1, 2, 11, 12, 21]
    assert columns["dones"].tolist() == [0, 1, 0, 0, 0]
    assert columns["truncated"].tolist() == [0, 0, 0, 1, 0]


def test_without_time_limits_a_jump_between_rows_ends_an_episode(load, counted):
    dataset = load(counted([1, 2, 3, 4, 5], dones=(1,), truncated=(3,)), without=["truncated"])
    assert dataset.columns["truncated"].tolist() == [0, 0, 0, 1, 0]
    assert dataset.columns["dones"].tolist() == [0, 1, 0, 0, 0]


# obs: 0 1 2 | 10 11 12 | 20 21. Row 2 dies, row 5 meets the time limit, row 7 is where the file ends.
def test_derived_successors_never_bridge_episodes(load, counted):
    dataset = load(counted([1, 2, 3, 4, 5, 6, 7, 8], dones=(2,), truncated=(5,)), without=["next_obs"])
    columns = dataset.columns
    assert columns["obs"].squeeze(1).tolist() == [0, 1, 2, 10, 11, 20]  # rows 5 and 7 have no known successor
    assert columns["next_obs"].squeeze(1).tolist() == [1, 2, 2, 11, 12, 21]  # the dead row keeps its own
    assert columns["dones"].tolist() == [0, 0, 1, 0, 0, 0]
    assert columns["truncated"].tolist() == [0, 0, 0, 0, 1, 0]
    assert dataset.episode_offsets.tolist() == [0, 3, 5]


def test_an_episode_of_one_row_without_successor_is_dropped_whole(load, counted):
    dataset = load(counted([1, 2, 3, 4], dones=(1, 3), truncated=(2,)), without=["next_obs"])
    assert dataset.columns["rewards"].tolist() == [1, 2, 4]
    assert dataset.columns["truncated"].tolist() == [0, 0, 0]


def test_neither_successors_nor_time_limits_is_rejected(load, counted):
    message = r"neither next_obs nor truncated, so '(dones|terminals)' may mark terminal states"
    with pytest.raises(ValueError, match=message):
        load(counted([1, 2]), without=["next_obs", "truncated"])


def test_a_missing_column_is_reported_with_its_names_and_what_is_there(load, counted):
    with pytest.raises(ValueError, match=r"has no column obs or observations.*; it has \['actions', 'next_obs"):
        load(counted([1, 2]), without=["obs"])


@pytest.mark.parametrize(
    ("missing", "is_named"), [(["rewards"], True), (["actions", "rewards"], True), (["actions"], False)]
)
def test_a_file_without_rewards_is_enough_for_algorithms_that_ignore_them(load, counted, missing, is_named):
    with pytest.raises(ValueError, match="has no column") as error:
        load(counted([1, 2]), without=missing)
    ending = "rewards=NAME, or, for bc and gail, which ignore rewards, --columns rewards=0"
    assert (str(error.value).endswith(ending), "rewards=0" in str(error.value)) == (is_named, is_named)


def test_whole_numbers_are_no_actions_of_a_box_unless_their_range_is_given(load, counted):
    rows = {**counted([1, 2], dones=(1,)), "actions": np.array([0, 1])}
    with pytest.raises(TypeError, match=r"actions are integers, expected Box actions of 1 dimensions, as in .*data"):
        load(rows, spec=WIDE)
    assert load(rows, spec=WIDE, action_range=(-2, 2)).columns["actions"].tolist() == [[0.0], [0.5]]


def test_actions_are_scaled_by_the_given_environments_bounds(load, counted):
    dataset = load({**counted([1, 2], dones=(1,)), "actions": np.array([[-3.0], [1.5]])}, spec=WIDE)
    assert dataset.columns["actions"].tolist() == [[-1.0], [0.5]]
    assert dataset.spec == WIDE


def test_optional_columns_are_loaded_and_lose_the_dropped_rows_too(load, counted):
    columns = {**counted([1, 2, 3], truncated=(2,)), "returns_to_go": np.array([6.0, 5.0, 3.0])}
    dataset = load({**columns, "next_actions": np.array([[0.1], [0.2], [0.3]])}, without=["next_obs"])
    assert dataset.columns["returns_to_go"].tolist() == [6, 5]
    assert dataset.columns["next_actions"].squeeze(1).tolist() == pytest.approx([0.1, 0.2])


def test_successors_of_another_dtype_are_rejected():
    pictures = np.zeros((2, 3, 8, 8), np.uint8)
    ends = np.array([0, 1])
    with pytest.raises(TypeError, match="obs are uint8 but next_obs are float32"):
        TransitionDataset.from_dict(
            {"obs": pictures, "next_obs": pictures / 255, "actions": ends, "rewards": ends, "dones": ends}
        )


def test_successors_of_another_shape_are_rejected(load, counted):
    with pytest.raises(ValueError, match=r"obs have shape \(2, 1\) but next_obs have \(2, 3\)"):
        load({**counted([1, 2]), "next_obs": np.zeros((2, 3))})


def test_a_column_of_another_length_is_rejected(load, counted):
    with pytest.raises(ValueError, match="all columns must have the same length"):
        load({**counted([1, 2]), "rewards": np.zeros(3)})


def test_terminated_is_believed_before_dones_that_count_time_limits(tmp_path, counted):
    columns = counted([1, 2], truncated=(1,))
    np.savez(tmp_path / "data.npz", **{**columns, "dones": [False, True]}, terminated=[False, False])
    assert load_transition_dataset(tmp_path / "data.npz").columns["dones"].tolist() == [0, 0]


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_successors_kept_in_another_precision_are_no_jumps(load, counted, precision):
    columns = counted([1, 2, 3], dones=(2,))
    columns["obs"] = (columns["obs"] * 0.1).astype(np.float64)
    columns["next_obs"] = np.append(columns["obs"][1:], [[9.0]], axis=0).astype(precision)
    assert torch.equal(load(columns).columns["truncated"], torch.zeros(3))


def test_columns_of_other_names_are_taken_as_given_and_reported(counted, tmp_path):
    columns = counted([1, 2], dones=(1,))
    stored = {"state": columns["obs"], "u": columns["actions"], "r": columns["rewards"], "next": columns["next_obs"]}
    np.savez(tmp_path / "mine.npz", **stored, over=columns["dones"])
    names = {"obs": "state", "actions": "u", "rewards": "r", "next_obs": "next", "dones": "over"}
    read = read_columns(tmp_path / "mine.npz", columns=names)
    assert read.names == names
    assert read.columns["dones"].tolist() == [False, True]


def test_a_given_name_that_the_file_lacks_is_refused_with_what_it_has(load, counted):
    with pytest.raises(ValueError, match=r"has no column 'state' to use as obs; it has \['actions', "):
        load(counted([1, 2], dones=(1,)), columns={"obs": "state"})


def test_a_files_word_in_the_place_of_ours_is_refused_with_ours(load, counted):
    with pytest.raises(ValueError, match=r"unknown column 'reward'; did you mean rewards=cost\?"):
        load({**counted([1, 2], dones=(1,)), "cost": np.ones(2)}, columns={"reward": "cost"})


def test_an_empty_name_leaves_a_column_out(load, counted):
    columns = {**counted([1, 2, 3], truncated=(1, 2)), "comment": np.array([np.nan, 1, 2])}
    dataset = load(columns, columns={"comment": "", "next_obs": ""})
    assert "comment" not in dataset.columns
    assert dataset.columns["obs"].tolist() == [[0]]  # the ends of both episodes have no successor now


def test_several_columns_side_by_side_are_one(load, counted):
    columns = {**counted([1, 2], dones=(1,)), "x": np.array([1.0, 2.0]), "y": np.array([[3.0, 4.0], [5.0, 6.0]])}
    dataset = load(columns, columns={"obs": "x,y", "next_obs": "x,y"}, allow=["crossing"])
    assert dataset.columns["obs"].tolist() == [[1, 3, 4], [2, 5, 6]]


@pytest.mark.parametrize("ids", [[7, 7, 3, 3, 3], ["a", "a", "b", "b", "b"]])
def test_ids_end_episodes_where_no_flag_does(tmp_path, counted, ids):
    columns = counted([1, 2, 3, 4, 5], truncated=(1, 4))
    np.savez(tmp_path / "data.npz", **{**columns, "truncated": np.zeros(5)}, episode_id=ids)
    read = read_columns(tmp_path / "data.npz").columns
    assert read["truncated"].tolist() == [False, True, False, False, False]
    assert "episodes" not in read


def test_ids_alone_tell_which_successors_are_known(tmp_path, counted):
    columns = counted([1, 2, 3, 4, 5], truncated=(1, 4))
    np.savez(tmp_path / "data.npz", obs=columns["obs"], actions=columns["actions"], rewards=columns["rewards"],
             traj_id=[0, 0, 1, 1, 1])  # fmt: skip
    columns = load_transition_dataset(tmp_path / "data.npz").columns
    assert columns["next_obs"].squeeze(1).tolist() == [1, 11, 12]
    assert columns["truncated"].tolist() == [1, 0, 0]


def test_rows_where_every_episode_dies_need_no_time_limits_if_that_is_said(load, counted):
    dataset = load(
        counted([1, 2, 3], dones=(0, 2)), without=["next_obs", "truncated"], columns={"truncated": "terminals"}
    )
    assert dataset.columns["dones"].tolist() == [1, 0, 1]
    assert dataset.columns["truncated"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("wrong", [2.0, np.nan])
def test_a_flag_that_is_neither_0_nor_1_is_refused_by_row(load, counted, wrong):
    columns = {**counted([1, 2]), "dones": np.array([0.0, wrong])}
    with pytest.raises(ValueError, match=r"data\.\w+: column '\w+' must hold 0 or 1, row 1 holds"):
        load(columns)


def test_numbers_in_another_machines_byte_order_are_read(load, counted):
    rows = {
        **counted([1, 2, 3], dones=(2,)),
        "actions": np.array([0, 2, 1], ">i4"),
        "weights": np.array([7, 8, 9], ">u2"),
    }
    columns = load({**rows, "rewards": rows["rewards"].astype(">f8")}).columns
    assert {name: columns[name].tolist() for name in ("actions", "weights", "rewards")} == {
        "actions": [0, 2, 1], "weights": [7, 8, 9], "rewards": [1, 2, 3],
    }  # fmt: skip


@pytest.mark.parametrize("column", [["a", "b"], np.array(["2020-01-01", "2020-01-02"], "M8[D]"), np.array([1j, 2])])
def test_a_needed_column_of_no_numbers_is_refused_by_name(tmp_path, counted, column):
    np.savez(tmp_path / "data.npz", **{**counted([1, 2], dones=(1,)), "rewards": column})
    with pytest.raises(TypeError, match="column 'rewards' must hold numbers, got"):
        load_transition_dataset(tmp_path / "data.npz")


def test_files_of_a_glob_are_joined_in_order_and_an_episode_ends_with_each(tmp_path, counted):
    np.savez(tmp_path / "b.npz", **counted([3, 4], truncated=(0,)))
    np.savez(tmp_path / "a.npz", **counted([1, 2], dones=(0,)))
    np.savez(tmp_path / "c.npz", **counted([5], dones=(0,)))
    dataset = load_transition_dataset(tmp_path / "*.npz")
    assert dataset.columns["rewards"].tolist() == [1, 2, 3, 4, 5]
    assert dataset.columns["truncated"].tolist() == [0, 1, 1, 1, 0]
    assert dataset.episode_offsets.tolist() == [0, 1, 2, 3, 4]
    assert read_columns(tmp_path / "*.npz").rows == 5


@pytest.mark.parametrize(("name", "word"), [("weights", "weights="), ("weight (kg)", "'weight (kg)='")])
def test_files_of_different_columns_are_not_joined(tmp_path, counted, name, word):
    np.savez(tmp_path / "a.npz", **counted([1, 2], dones=(1,)))
    np.savez(tmp_path / "b.npz", **{**counted([1, 2], dones=(1,)), name: [1, 2]})
    remedy = re.escape(f"load these files separately, or use --columns {word} to")
    with pytest.raises(ValueError, match=rf"b\.npz has the columns .*'{re.escape(name)}'.* {remedy}"):
        load_transition_dataset(tmp_path / "*.npz")


def test_files_of_different_action_sizes_are_not_joined(tmp_path, counted):
    np.savez(tmp_path / "a.npz", **counted([1, 2], dones=(1,)))
    np.savez(tmp_path / "b.npz", **{**counted([1, 2], dones=(1,)), "actions": np.zeros((2, 3), np.float32)})
    with pytest.raises(ValueError, match=r"^\S+b\.npz has actions of shape \(2, 3\), but \S+a\.npz has \(2, 1\); load"):
        load_transition_dataset(tmp_path / "*.npz")


def test_files_of_different_action_bounds_are_not_joined(tmp_path, counted):
    for name, high in (("a.npz", 3.0), ("b.npz", 4.0)):
        spec = replace(WIDE, action_high=(high,))
        save_npz(TransitionDataset.from_dict(counted([1, 2], dones=(1,)), spec=spec), tmp_path / name)
    with pytest.raises(
        ValueError, match=r"^\S+b\.npz has action_high \(4\.0,\), but \S+a\.npz has \(3\.0,\); load these"
    ):
        load_transition_dataset(tmp_path / "*.npz")
    np.savez(tmp_path / "b.npz", **counted([1, 2], dones=(1,)))
    with pytest.raises(ValueError, match=r"^\S+a\.npz has a description of its spaces, but \S+b\.npz has none; load"):
        load_transition_dataset(tmp_path / "*.npz")


def test_a_glob_that_matches_nothing_is_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^no file matches .*\*\.npz$"):
        load_transition_dataset(tmp_path / "*.npz")
