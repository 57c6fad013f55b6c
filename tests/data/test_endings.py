"""Dataset files with other endings or other contents, and folders: each message names what to do."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rl_training.data import load_transition_dataset

pytest.importorskip("pyarrow")
SUPPORTED = r"supported are \.npz, \.hdf5, \.h5, \.parquet, \.csv, \.csv\.gz files and Minari datasets"
TABLE = "obs,action,reward,done\n1,0,0,0\n2,1,1,0\n3,0,1,1\n"


def refused(path: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        load_transition_dataset(path)


@pytest.mark.parametrize("name", ["log.txt", "log.tsv", "log"])
def test_a_table_of_text_can_be_renamed(tmp_path, name):
    (tmp_path / name).write_text(TABLE)
    refused(tmp_path / name, f"{SUPPORTED}; rename it to end in .csv if it is a table of text$")


@pytest.mark.parametrize("name", ["log.xlsx", "log.feather", "log.jsonl", "log.pkl"])
def test_other_tables_are_read_with_pandas(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    refused(tmp_path / name, "read it with pandas, and pass the frame to TransitionDataset.from_dataframe")


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.h5", "log"])
def test_contents_of_another_ending_are_named(tmp_path, name):
    np.savez(tmp_path / "log.npz", obs=np.zeros(3))
    (tmp_path / "log.npz").rename(tmp_path / name)
    refused(tmp_path / name, "rename it to end in .npz$")


def test_compressed_text_is_named(tmp_path):
    (tmp_path / "log.csv").write_bytes(gzip.compress(TABLE.encode()))
    refused(tmp_path / "log.csv", "holds the contents of a .csv.gz file; rename it to end in .csv.gz")


def test_both_endings_of_hdf5_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name in ("observations", "actions"):
            file[name] = np.arange(8, dtype=np.float32).reshape(4, 2)
        file["rewards"], file["terminals"] = np.zeros(4, np.float32), np.array([0, 0, 0, 1])
        file["timeouts"] = np.zeros(4)
    assert len(load_transition_dataset(tmp_path / "log.h5")) == 4


def test_a_folder_names_the_pattern_of_its_files(tmp_path):
    refused(tmp_path, r"is a folder; it has no file that can be read \(.npz, ")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "log.csv").write_text(TABLE)
    refused(tmp_path, rf"is a folder; name its files: '{tmp_path}/\*\.csv'$")


@pytest.mark.parametrize(
    ("cells", "row"), [(("1", "1,234.5", "2"), 1), (("-1,234,567", "1,234", "2"), 0), (("1 234", "1 000", "5 000"), 0)]
)
def test_separators_of_thousands_are_named(tmp_path, cells, row):
    rows = "".join(f'{number},0,"{cell}",{int(number == 2)}\n' for number, cell in enumerate(cells))
    (tmp_path / "log.csv").write_text("obs,action,reward,done\n" + rows)
    with pytest.raises(TypeError, match=f"row {row} holds .*; write numbers without thousands separators"):
        load_transition_dataset(tmp_path / "log.csv")
