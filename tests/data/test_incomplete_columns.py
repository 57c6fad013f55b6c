"""Columns that nothing needs and that have missing values in some of several files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_training.data import load_transition_dataset

MISSING = {"a gap": [1.0, None, 3.0], "all empty": [None] * 3}


def write(path: Path, **changes: object) -> Path:
    columns = {"episode": 0, "obs": [0.5, 1.5, 2.5], "action": [0, 1, 0], "reward": 1.0, "done": [0, 0, 1]}
    frame = pd.DataFrame({**columns, **changes})
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_column_with_a_gap_in_one_file_is_left_out_of_all(tmp_path, kind, ending, place):
    files = [write(tmp_path / f"{number}.{ending}", note=[1.0, 2.0, 3.0], load=[1, 2, 3]) for number in range(3)]
    write(files[place], note=MISSING[kind], load=[1, 2, 3])
    joined = load_transition_dataset(files)
    assert (len(joined), "note" in joined.columns, "load" in joined.columns) == (9, False, True)
    text = "left out, because values are missing in one of the files: 'note' (keep with --columns NAME=NAME)"
    assert text in joined.notes
    whole = load_transition_dataset([file for file in files if file != files[place]])
    assert "note" in whole.columns
    kept = load_transition_dataset(files, columns={"note": "note"}, allow=["nan"])
    assert "note" in kept.columns


def test_a_time_that_is_empty_in_one_file_is_refused(tmp_path):
    files = [write(tmp_path / "a.csv", stamp=[f"2026-01-0{day}" for day in (1, 2, 3)])]
    files.append(write(tmp_path / "b.csv", stamp=[None] * 3))
    with pytest.raises(ValueError, match=r"b.csv has the columns .* but .*a.csv has .*'stamp'"):
        load_transition_dataset(files)


def test_an_array_with_a_gap_in_one_file_is_left_out_of_all(tmp_path):
    columns = {
        "obs": np.ones((2, 1)),
        "next_obs": np.ones((2, 1)),
        "actions": [0, 1],
        "rewards": [1, 1],
        "dones": [0, 1],
    }
    for name, notes in {"a": [1.0, 2.0], "b": [1.0, np.nan]}.items():
        np.savez(tmp_path / f"{name}.npz", **columns, note=notes)  # type: ignore[arg-type]
    joined = load_transition_dataset(tmp_path / "*.npz")
    assert (len(joined), "note" in joined.columns) == (4, False)
    assert "left out, because values are missing: 'note' (keep with --columns NAME=NAME)" in joined.notes


@pytest.mark.parametrize("value", [{"a": 1}, [b"x"], b"x"])
def test_a_column_named_time_of_bytes_or_structs_is_ignored(tmp_path, value):
    columns = {"obs": [0.0, 1.0, 2.0, 3.0], "action": [0, 1] * 2, "reward": [1.0] * 4, "done": [False, True] * 2}
    pq.write_table(pa.table({**columns, "time": pa.array([value] * 4)}), tmp_path / "log.parquet")
    assert len(load_transition_dataset(tmp_path / "log.parquet", columns={"truncated": "done"})) == 4
