"""Uneven time steps: durations from a time column, discounts gamma ** (duration / unit), and n-step returns of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, save_transition_dataset
from rl_training.data.datasets.durations import discount_steps
from rl_training.data.datasets.validation import DatasetError

START = 1_700_000_000.0  # Unix time, which float32 resolves to 128 seconds


def write(folder: Path, kind: str, columns: dict[str, Any]) -> Path:
    path = folder / f"log.{kind}"
    if kind == "npz":
        np.savez(path, **columns)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name, column in columns.items():
                file[name] = column
    else:
        flat = {name: np.asarray(column, np.float64).reshape(-1) for name, column in columns.items()}
        rows = [",".join(f"{cell:.17g}" for cell in row) for row in zip(*flat.values(), strict=True)]
        path.write_text("\n".join([",".join(flat), *rows, ""]))
    return path


@pytest.fixture(params=["npz", "hdf5", "csv"])
def stored(request, tmp_path):
    return lambda columns: write(tmp_path, request.param, columns)


def test_a_duration_is_the_time_to_the_next_row_of_the_episode(stored, counted):
    # Steps of 0.25, 0.5 | 0.25, 1; the last row of an episode gets their median, 0.375.
    times = START + np.array([0, 0.25, 0.75, 60, 60.25, 61.25])
    columns = counted([1, 2, 3, 4, 5, 6], dones=(2,), truncated=(5,)) | {"t": times}
    dataset = load_transition_dataset(stored(columns), columns={"time": "t"})
    assert dataset.columns["durations"].tolist() == [0.25, 0.5, 0.375, 0.25, 1, 0.375]


def test_the_time_of_a_dropped_row_still_ends_the_step_before_it(stored, counted):
    columns = counted([1, 2, 3, 4], truncated=(2,)) | {"t": START + np.array([0, 1, 3, 10])}
    del columns["next_obs"]
    dataset = load_transition_dataset(stored(columns), columns={"time": "t"})
    assert dataset.columns["rewards"].tolist() == [1, 2]
    assert dataset.columns["durations"].tolist() == [1, 2]


def test_a_time_column_that_is_not_named_adds_nothing(tmp_path, counted):
    path = write(tmp_path, "npz", counted([1, 2], dones=(1,)) | {"time": np.array([5.0, 6.0])})
    assert "durations" not in load_transition_dataset(path).columns


def test_a_time_column_that_is_not_in_the_file_is_named(stored, counted):
    with pytest.raises(ValueError, match="has no column 'when' to use as time; it has"):
        load_transition_dataset(stored(counted([1, 2], dones=(1,))), columns={"time": "when"})


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        ([1, 0, 2], r"must be positive, but it is 0 in row 1 \(and 0 others of 3\); sort the rows of each episode"),
        ([1, -3, 0], r"must be positive, but it is -3 in row 1 \(and 1 others of 3\)"),
        ([1, 2, np.nan], "must be positive, but it is nan in row 2"),
    ],
)
def test_a_time_that_does_not_increase_is_refused(durations, message):
    with pytest.raises(DatasetError, match=message):
        discount_steps(np.array(durations), 1.0)


def test_without_a_unit_the_median_step_is_proposed():
    message = r"needs time_unit.*the median time step of the data is 0\.5: set time_unit=0\.5"
    with pytest.raises(DatasetError, match=message):
        discount_steps(np.array([0.5, 0.5, 2]), None)


def test_a_row_is_discounted_by_gamma_to_its_duration_in_units(counted):
    columns = counted([1, 2, 3], truncated=(2,)) | {"durations": np.array([30.0, 60.0, 120.0])}
    dataset = TransitionDataset.from_dict(columns).with_time_unit(60).with_discounts(0.25)
    assert dataset.columns["discount_steps"].tolist() == [0.5, 1, 2]
    assert dataset.columns["discounts"].tolist() == [0.5, 0.25, 0.0625]


def test_data_without_durations_cannot_be_discounted_by_time(counted):
    with pytest.raises(ValueError, match="need the time of each row; name its column with --columns time=NAME"):
        TransitionDataset.from_dict(counted([1, 2], dones=(1,))).with_time_unit(1.0)


def test_a_file_changes_the_discounts_only_if_its_column_is_named(stored, counted):
    columns = counted([1, 2, 3, 4], dones=(3,)) | {"discounts": np.full(4, 0.5), "speed": np.zeros(4)}
    path = stored(columns)
    assert load_transition_dataset(path).columns.keys() >= {"speed"}
    assert "discounts" not in load_transition_dataset(path).columns
    named = load_transition_dataset(path, columns={"discounts": "discounts"})
    assert named.columns["discounts"].tolist() == [0.5] * 4


def test_a_discount_beyond_1_is_refused(counted):
    with pytest.raises(DatasetError, match=r"'discounts' must be in \[0, 1\], row 1 holds 1\.5"):
        TransitionDataset.from_dict(counted([1, 2], dones=(1,)) | {"discounts": np.array([0.5, 1.5])})


def test_returns_to_go_with_uneven_steps_by_hand(counted):
    columns = counted([1, 2, 4, 8], dones=(2,)) | {"discounts": np.array([0.5, 0.25, 0.9, 0.5])}
    dataset = TransitionDataset.from_dict(columns).with_discounted_returns_to_go(0.99)
    # 4 | 2 + 4 / 4 = 3 | 1 + 3 / 2 = 2.5; the cut episode of one row repeats its reward: 8 + 8 / 2 + ... = 16
    assert dataset.columns["returns_to_go"].tolist() == [2.5, 3, 4, 16]


def test_returns_to_go_follow_the_time_steps_for_every_gamma(counted):
    columns = counted([1, 2], dones=(1,)) | {"durations": np.array([2.0, 1.0])}
    timed = TransitionDataset.from_dict(columns).with_time_unit(1).with_discounts(0.9)
    assert timed.with_discounted_returns_to_go(0.5).columns["returns_to_go"].tolist() == [1.5, 2]  # 1 + 2 / 4
    returns = timed.with_discounted_returns_to_go(0.25).with_discounts(0.25).columns["returns_to_go"]
    assert returns.tolist() == [1.125, 2]


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_equal_discounts_give_the_returns_to_go_of_gamma(counted, gamma):
    rows = counted([1, -2, 4, 8, 3, 5, 7], dones=(2,), truncated=(5,))
    even = TransitionDataset.from_dict(rows).with_discounted_returns_to_go(gamma)
    uneven = TransitionDataset.from_dict(rows | {"discounts": np.full(7, gamma)}).with_discounted_returns_to_go(gamma)
    torch.testing.assert_close(uneven.columns["returns_to_go"], even.columns["returns_to_go"])


def test_three_step_returns_of_data_by_hand(counted):
    # Rewards 1 2 4 8 | 16 32: the first episode terminates at row 3, the second is truncated at row 5.
    dataset = TransitionDataset.from_dict(counted([1, 2, 4, 8, 16, 32], dones=(3,), truncated=(5,)))
    columns = dataset.with_n_step_returns(3, 0.5).columns
    assert columns["rewards"].tolist() == [3, 6, 8, 8, 32, 32]  # 1 + 2/2 + 4/4, 2 + 4/2 + 8/4, 4 + 8/2, ...
    assert columns["discounts"].tolist() == [0.125, 0.125, 0.25, 0.5, 0.25, 0.5]
    assert columns["next_obs"].squeeze(1).tolist() == [3, 4, 4, 4, 12, 12]
    assert columns["dones"].tolist() == [0, 1, 1, 1, 0, 0]
    assert columns["truncated"].tolist() == [0, 0, 0, 0, 1, 1]
    assert columns["obs"].equal(dataset.columns["obs"])


def test_two_step_returns_with_uneven_steps_by_hand(counted):
    rows = counted([1, 2, 4], truncated=(2,)) | {"discounts": np.array([0.5, 0.25, 0.75])}
    columns = TransitionDataset.from_dict(rows).with_n_step_returns(2, 0.99).columns
    assert columns["rewards"].tolist() == [2, 3, 4]  # 1 + 2/2, 2 + 4/4, 4
    assert columns["discounts"].tolist() == [0.125, 0.1875, 0.75]


def test_one_step_returns_are_the_rewards(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 4], dones=(1,)))
    one = dataset.with_n_step_returns(1, 0.5).columns
    assert all(one[name].equal(column) for name, column in dataset.columns.items())
    assert one["discounts"].tolist() == [0.5] * 3


def timed_table(folder: Path, times: Any, form: str) -> Path:
    """Six episodes of four rows, of which every second one is cut; next_obs is derived."""
    path, rows = folder / "log.csv", ["episode,obs,action,reward,done,timestamp"]
    rows += [f"{row // 4},{row},{row % 2},1,{int(row % 8 == 7)},{time:{form}}" for row, time in enumerate(times)]
    path.write_text("\n".join([*rows, ""]))
    return path


NANOSECONDS = 1_700_000_000_000_000_001
UNEVEN = np.cumsum(np.arange(24) % 5 + 1)


@pytest.mark.parametrize(
    ("times", "form", "dtype"),
    [(START + UNEVEN / 1000, ".3f", torch.float64), (NANOSECONDS + UNEVEN, "d", torch.int64)],
    ids=["seconds", "nanoseconds"],
)
@pytest.mark.parametrize("suffix", ["npz", "parquet", "v0"])
def test_a_split_keeps_the_time_and_the_durations_of_the_whole_table(tmp_path, times, form, dtype, suffix):
    path = timed_table(tmp_path, times, form)
    whole = load_transition_dataset(path, columns={"time": "timestamp"})
    known = dict(zip(whole.columns["obs"].flatten().tolist(), whole.columns["durations"].tolist(), strict=True))
    for side, part in load_transition_dataset(path, keep_durations=True).split(0.5)._asdict().items():
        file = tmp_path / (f"{side}.{suffix}" if suffix != "v0" else f"{side}-v0")
        save_transition_dataset(part, file)
        again = load_transition_dataset(file, columns={"time": "infos/timestamp" if suffix == "v0" else "timestamp"})
        rows = again.columns["obs"].flatten().int().tolist()
        assert again.columns["time"].dtype == dtype
        assert again.columns["time"].tolist() == [times[row] for row in rows]
        assert again.columns["durations"].tolist() == [known[row] for row in rows]


def test_other_columns_keep_their_precision_until_training(counted):
    exact = TransitionDataset.from_dict(counted([1, 2], dones=(1,)) | {"t": START + np.array([0, 0.25])})
    assert exact.columns["t"].tolist() == [START, START + 0.25]
    assert exact.for_training().columns["t"].dtype == exact.columns["rewards"].dtype == torch.float32


def test_a_run_trains_on_times_of_32_bits(tmp_path):
    """The time of a table is float32 in batches, whatever the file holds."""
    dataset = load_transition_dataset(timed_table(tmp_path, NANOSECONDS + UNEVEN, "d")).for_training()
    assert dataset.columns["timestamp"].dtype == torch.float32


def test_durations_of_another_time_column_are_refused(tmp_path, counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"t": [0.0, 5.0, 7.0], "durations": [1.0, 1.0, 1.0]}
    path = write(tmp_path, "npz", columns)
    message = (
        r"column 't' steps by 5 in row 0, but the column 'durations' has 1; use the time with --columns durations="
    )
    with pytest.raises(DatasetError, match=message):
        load_transition_dataset(path, columns={"time": "t"})
    measured = load_transition_dataset(path, columns={"time": "t", "durations": ""})
    assert measured.columns["durations"].tolist() == [5, 2, 3.5]
    named = load_transition_dataset(path, columns={"time": "t", "durations": "durations"})
    assert named.columns["durations"].tolist() == [1, 1, 1]
