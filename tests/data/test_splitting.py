"""`TransitionDataset.split`: whole episodes, at random, by time or by group."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, save_transition_dataset

LENGTHS = (3, 1, 4, 2, 5, 3, 2, 4, 1, 5)


@pytest.fixture
def episodes(counted) -> TransitionDataset:
    """Ten episodes; their patients are 7, 7, 8, 8, ... and their times run backwards."""
    ends = (np.cumsum(LENGTHS) - 1).tolist()
    number = np.repeat(np.arange(10), LENGTHS)
    columns = counted([1.0] * sum(LENGTHS), dones=tuple(ends[::2]), truncated=tuple(ends[1::2]))
    return TransitionDataset.from_dict({**columns, "patient": 7 + number // 2, "hour": 100 - number})


def starts(dataset: TransitionDataset) -> list[float]:
    """The number of each episode times ten, by which it starts."""
    return dataset.columns["obs"][dataset.episode_offsets, 0].tolist()


def test_every_episode_is_whole_and_on_one_side(episodes):
    train, test = episodes.split(0.3, seed=1)
    assert len(test.episode_offsets) == 3
    assert sorted(starts(train) + starts(test)) == [10.0 * number for number in range(10)]
    lengths = {10.0 * number: float(length) for number, length in enumerate(LENGTHS)}
    for part in (train, test):
        assert part.episode_returns().tolist() == [lengths[start] for start in starts(part)]
        assert starts(part) == sorted(starts(part))  # in recorded order
    assert {*train.columns} == {*episodes.columns}
    assert (train.spec, test.spec) == (episodes.spec, episodes.spec)


def test_one_seed_gives_one_split(episodes):
    first, again = (episodes.split(0.5, seed=3) for _ in range(2))
    assert starts(first.test) == starts(again.test)
    assert len({tuple(starts(episodes.split(0.5, seed=seed).test)) for seed in range(5)}) > 1


def test_the_last_episodes_are_the_test_part_by_time(episodes):
    assert starts(episodes.split(0.2, by="time").test) == [80.0, 90.0]
    assert starts(episodes.split(0.2, by="time", column="hour").test) == [0.0, 10.0]  # in which time runs backwards


def test_a_group_stays_on_one_side(episodes):
    for seed in range(5):
        train, test = episodes.split(0.4, by="group", column="patient", seed=seed)
        ours, theirs = ({*part.columns["patient"].tolist()} for part in (train, test))
        assert (len(ours), len(theirs), ours & theirs) == (3, 2, set())
    splits = (episodes.split(0.4, by="group", column="patient", seed=seed).test for seed in range(5))
    assert len({tuple(starts(test)) for test in splits}) > 1


def test_episodes_of_equal_time_are_in_recorded_order(counted):
    columns = counted([1.0] * 100, dones=tuple(range(100))) | {"day": np.arange(100) % 2}
    test = TransitionDataset.from_dict(columns).split(0.2, by="time", column="day").test
    assert starts(test) == [10.0 * number for number in range(61, 100, 2)]  # the last 20 of those of day 1


@pytest.mark.parametrize(("fraction", "expected"), [(0.01, 1), (0.25, 2), (0.26, 3), (0.99, 9)])
def test_both_sides_have_an_episode(episodes, fraction, expected):
    assert len(episodes.split(fraction).test.episode_offsets) == expected


def test_the_last_episode_of_a_side_ends_in_its_file(counted, tmp_path):
    dataset = TransitionDataset.from_dict(counted([1.0] * 6, truncated=(1, 3)))  # the data end within an episode
    for name, part in dataset.split(0.5, by="time")._asdict().items():
        save_transition_dataset(part, tmp_path / f"{name}.npz")
        assert torch.equal(load_transition_dataset(tmp_path / f"{name}.npz").episode_ends, part.episode_ends)


def test_known_returns_to_go_are_kept(episodes):
    train, _ = episodes.with_discounted_returns_to_go(0.9).split(0.5)
    assert train.gamma == 0.9
    again = train.with_discounted_returns_to_go(0.9)
    torch.testing.assert_close(train.columns["returns_to_go"], again.columns["returns_to_go"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0.0}, "test must be a fraction between 0 and 1, got 0"),
        ({"test": 20}, "test must be a fraction between 0 and 1, got 20"),
        ({"by": "row"}, "by must be one of episode, time, group, got 'row'"),
        ({"column": "patient"}, "column 'patient' needs by='time' or by='group'"),
        ({"by": "group"}, "a split by group needs the column of the groups"),
        ({"by": "group", "column": "doctor"}, "the dataset has no column 'doctor'; it has"),
        ({"by": "group", "column": "rewards"}, "needs at least two groups, and all rows have the group 1"),
        ({"by": "group", "column": "obs"}, r"column 'obs' must have one number per row, got shape \(1,\)"),
        ({"by": "group", "column": "dones"}, "the group changes within an episode at row 2, from 0 to 1"),
    ],
)
def test_a_split_that_is_impossible_is_refused(episodes, options, message):
    with pytest.raises(ValueError, match=message):
        episodes.split(**options)


def test_one_episode_is_not_cut(counted):
    with pytest.raises(ValueError, match="needs at least two episodes, and the data has one"):
        TransitionDataset.from_dict(counted([1.0, 1.0, 1.0], dones=(2,))).split()


@pytest.mark.parametrize(("missing", "pieces"), [(3, 20), (6, 10)])  # in the middle of an episode, or near its end
def test_an_episode_that_a_dropped_row_cuts_stays_on_one_side(missing, pieces, tmp_path):
    file = tmp_path / "logs.csv"
    rows = [
        f"{episode},{'' if step == missing else 10 * episode + step},0.5,1"
        for episode in range(10)
        for step in range(8)
    ]
    file.write_text("\n".join(["episode,obs_0,action_0,reward", *rows]))
    dataset = load_transition_dataset(file, allow=["nan"], action_range=(-1, 1))
    assert len(dataset.episode_offsets) == pieces
    for split in (dataset.split(0.3), dataset.split(0.3, by="time")):
        sides = [{int(value) // 10 for value in part.columns["obs"][:, 0]} for part in split]
        assert [len(side) for side in sides] == [7, 3]
        assert sides[0].isdisjoint(sides[1])


VISITS = [(patient, visit, level) for patient in (7, 8, 9) for visit in (1, 2) for level in range(3)]


@pytest.mark.parametrize("episodes", [["patient", "visit"], "patient"])
@pytest.mark.parametrize("prefix", ["", "p"])
def test_a_part_of_the_id_of_an_episode_may_be_the_group(tmp_path, episodes, prefix):
    rows = [f"{prefix}{patient},{visit},{10 * patient + level},0,1" for patient, visit, level in VISITS]
    files = []
    for number, part in enumerate((rows[:12], rows[12:])):
        files.append(tmp_path / f"{number}.csv")
        files[-1].write_text("\n".join(["patient,visit,obs_0,action,reward", *part]))
    dataset = load_transition_dataset(files, columns={"episodes": episodes}, ids=["patient"])
    assert len(dataset.episode_offsets) == (6 if len(episodes) == 2 else 3)
    train, test = dataset.split(0.34, by="group", column="patient")
    sides = [{int(value) // 10 for value in part.columns["obs"][:, 0]} for part in (train, test)]
    assert sorted(map(len, sides)) == [1, 2]
    assert sides[0].isdisjoint(sides[1])


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("number", "word"), [("7", "7"), ("7", "007"), ("7.0", "7")])
@pytest.mark.parametrize("reader", ["pyarrow", "without pyarrow"])
def test_a_group_is_numbered_as_one_if_it_is_text_in_another_file(tmp_path, monkeypatch, reader, number, word, swapped):
    if reader == "without pyarrow":
        monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    for path, patients in zip(files, ([number, "8"], [word, "8", "EXT-1"])[:: -1 if swapped else 1], strict=True):
        rows = [f"{episode},{patient},{level},0,1" for episode, patient in enumerate(patients) for level in range(3)]
        path.write_text("\n".join(["episode,patient,obs_0,action,reward", *rows]))
    patients = load_transition_dataset(files, ids=["patient"]).columns["patient"][::2].tolist()
    assert patients == ([0, 1, 2, 0, 1] if swapped else [0, 1, 0, 1, 2])


def test_groups_that_only_look_like_the_same_number_are_different(tmp_path):
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    for path, patients in zip(files, (["1000", "2"], ["1e3", "ab1"]), strict=True):
        rows = [f"{episode},{patient},{level},0,1" for episode, patient in enumerate(patients) for level in range(3)]
        path.write_text("\n".join(["episode,patient,obs_0,action,reward", *rows]))
    assert load_transition_dataset(files, ids=["patient"]).columns["patient"][::2].tolist() == [0, 1, 2, 3]
