"""Tables, CSV and Parquet: a column a number or a list of them, by guessed or given names."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rl_training.data import TransitionDataset, load_transition_dataset, read_columns
from rl_training.data.datasets.checks import inspect_source

LOG = """episode_id,obs_0,obs_1,act_0,reward,done,note
a,0,0.5,-1.5,1,False,start
a,1,1.5,0.5,2,False,
a,2,2.5,1.5,3,True,end
b,10,10.5,0.25,4,False,start
b,11,11.5,0.5,5,False,
"""


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path / "log.csv"


def test_a_csv_of_numbered_columns_is_read_by_guess(log):
    read = read_columns(log)
    assert read.names == {
        "obs": "obs_*", "actions": "act_*", "rewards": "reward", "dones": "done", "episodes": "episode_id"
    }  # fmt: skip
    assert read.rows == 5
    assert read.columns["obs"].tolist() == [[0, 0.5], [1, 1.5], [2, 2.5], [10, 10.5]]
    assert read.columns["next_obs"].tolist() == [[1, 1.5], [2, 2.5], [2, 2.5], [11, 11.5]]
    assert read.columns["dones"].tolist() == [False, False, True, False]
    assert "note" not in read.columns  # text is no column to learn from


@pytest.mark.parametrize(
    ("names", "first"), [("obs_1,obs_0", [0.5, 0]), (["obs_1", "obs_0"], [0.5, 0]), ("obs_*", [0, 0.5])]
)
def test_columns_of_a_csv_can_be_named(log, names, first):
    assert read_columns(log, columns={"obs": names}).columns["obs"][0].tolist() == first


def test_a_name_that_is_no_text_is_not_called_damage(log):
    path = log.rename(log.with_name(os.fsdecode(b"l\xfcg.csv")))  # as every umlaut is read in the locale C
    message = r"has a name that is no UTF-8 text here; set PYTHONUTF8=1, or rename it$"
    with pytest.raises(ValueError, match=message):
        read_columns(path)


def test_ten_numbered_columns_keep_their_order(tmp_path):
    names = [f"state{number}" for number in (10, 9, 2, 1)]
    (tmp_path / "log.csv").write_text(f"{','.join(names)},action,reward,terminal,timeout\n10,9,2,1,0,1,1,0\n")
    assert read_columns(tmp_path / "log.csv").columns["obs"].tolist() == [[1, 2, 9, 10]]


def test_whole_numbers_are_discrete_actions_until_one_is_not(tmp_path):
    text = "obs,next_obs,action,reward,done,truncated\n1,2,0,1,0,0\n2,3,1,1,1,0\n"
    (tmp_path / "whole.csv").write_text(text)
    (tmp_path / "parts.csv").write_text(text.replace("3,1,1", "3,0.5,1"))
    assert load_transition_dataset(tmp_path / "whole.csv").spec.action_kind == "discrete"
    assert load_transition_dataset(tmp_path / "parts.csv").columns["actions"].tolist() == [[0], [0.5]]


def test_an_empty_cell_is_nan(tmp_path):
    (tmp_path / "log.csv").write_text("obs,next_obs,action,reward,done,truncated\n1,2,0.5,1,0,0\n2,3,0.5,,1,0\n")
    with pytest.raises(ValueError, match="'rewards' is NaN or infinite in 1 of 2 rows, the first is row 1"):
        load_transition_dataset(tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ("obs,action,reward,done\n1,2,3\n", ValueError, "row 0 has 3 cells, the header has 4"),
        ("obs,action,reward,timeout\n1,2,3,0\n1,2,x,0\n", TypeError, "'reward' must hold numbers, but row 1 holds 'x'"),
        ("obs,obs,reward\n1,2,3\n", ValueError, "has 2 columns named 'obs'; rename all but one"),
        ("obs;action;reward\n1,5;2\n", ValueError, "row 0 has 2 cells, the header has 3.* --csv-dialect"),
        ("obs,action,reward\n", ValueError, "it has no rows below a header"),
        ("", ValueError, "it has no rows below a header"),
    ],
)
def test_a_csv_that_is_no_table_of_numbers_is_refused_by_row(tmp_path, text, error, sentence):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(error, match=sentence):
        load_transition_dataset(tmp_path / "log.csv")


def test_other_columns_of_text_are_passed_over(tmp_path):
    text = "obs,next_obs,action,reward,done,time,note\n1,2,0.5,1,1,7.5,\n"
    (tmp_path / "log.csv").write_text(text)
    columns = load_transition_dataset(tmp_path / "log.csv").columns
    assert columns["time"].tolist() == [7.5]
    assert "note" not in columns


@pytest.mark.parametrize("encoding", ["CP1252", "UTF-16"])
def test_a_csv_in_another_encoding_is_one_sentence_with_the_command_that_converts_it(tmp_path, encoding):
    (tmp_path / "my log.csv").write_bytes("obs,action,reward,note\n1,2,3,ä\n".encode(encoding))
    with pytest.raises(ValueError, match=r"my log\.csv is not UTF-8 text") as raised:
        load_transition_dataset(tmp_path / "my log.csv")
    assert f"`iconv -f {encoding} -t UTF-8 '{tmp_path}/my log.csv' > utf8.csv`" in str(raised.value)


def test_a_csv_of_more_rows_than_are_read_at_once_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.data.readers.csv.ROWS", 2)
    rows = "".join(f"{row},{row + 1},{'0' if row < 3 else '0.5'},{row},{int(row == 4)},0\n" for row in range(5))
    (tmp_path / "log.csv").write_text(f"obs,next_obs,action,reward,done,truncated\n{rows}")
    dataset = load_transition_dataset(tmp_path / "log.csv")
    assert dataset.columns["rewards"].tolist() == [0, 1, 2, 3, 4]
    assert dataset.columns["actions"].squeeze(1).tolist() == [0, 0, 0, 0.5, 0.5]


def table(counted, **changes):
    columns = {**counted([1, 2, 3], dones=(2,)), **changes}
    return pa.table(
        {name: column if isinstance(column, pa.Array) else list(column) for name, column in columns.items()}
    )


def test_lists_in_a_parquet_file_are_vectors(tmp_path, counted):
    obs = pa.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
    following = pa.array([[1.0, 2.0], [2.0, 3.0], [9.0, 9.0]])
    pq.write_table(table(counted, obs=obs, next_obs=following), tmp_path / "log.parquet")
    assert load_transition_dataset(tmp_path / "log.parquet").columns["obs"].tolist() == [[0, 1], [1, 2], [2, 3]]


def test_lists_of_text_in_a_parquet_file_are_ignored(tmp_path, counted):
    pq.write_table(table(counted, tags=[["a"], [], ["a", "b"]]), tmp_path / "log.parquet")
    assert "tags" not in read_columns(tmp_path / "log.parquet").columns
    with pytest.raises(ValueError, match="column 'tags' has lists of different lengths; leave it out with"):
        read_columns(tmp_path / "log.parquet", columns={"tags": "tags"})


def test_ragged_lists_are_refused_by_column(tmp_path, counted):
    obs = pa.array([[0.0], [1.0, 2.0, 3.0], [2.0, 3.0]])
    pq.write_table(table(counted, obs=obs), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="column 'obs' has lists of different lengths"):
        load_transition_dataset(tmp_path / "log.parquet")


def test_a_missing_number_in_a_parquet_file_is_nan(tmp_path, counted):
    pq.write_table(table(counted, rewards=pa.array([1.0, None, 3.0])), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="'rewards' is NaN"):
        load_transition_dataset(tmp_path / "log.parquet")
    assert len(load_transition_dataset(tmp_path / "log.parquet", allow=["nan"])) == 2


@pytest.mark.parametrize("obs", [[True, None, False], [[1.0, 2.0], None, [2.0, 3.0]]])
def test_missing_booleans_and_lists_in_a_parquet_file_are_nan(tmp_path, counted, obs):
    rows = table(counted, obs=obs, next_obs=obs, spare=[None, True, None])
    pq.write_table(rows.drop_columns(["next_obs"]), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"column 'obs' .*is NaN or infinite in 1 of 3 rows, the first is row 1"):
        load_transition_dataset(tmp_path / "log.parquet")
    found = read_columns(tmp_path / "log.parquet").columns
    assert np.isnan(found["obs"][1]).all()
    assert found["obs"][[0, 2]].tolist() == [each for each in obs if each is not None]
    assert "spare" not in found  # nothing needs it


def test_a_missing_flag_is_rejected(tmp_path, counted):
    pq.write_table(table(counted, dones=pa.array([False, None, True])), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match="'dones' must hold 0 or 1, row 1 holds nan; 1 of 3 cells are empty"):
        load_transition_dataset(tmp_path / "log.parquet")


def test_text_in_a_needed_column_is_rejected(tmp_path, counted):
    pq.write_table(table(counted, rewards=pa.array(["a", "b", "c"])), tmp_path / "log.parquet")
    with pytest.raises(TypeError, match="column 'rewards' must hold numbers"):
        load_transition_dataset(tmp_path / "log.parquet")


def test_ids_of_text_end_episodes_in_a_parquet_file(tmp_path, counted):
    columns = {**counted([1, 2, 3], truncated=(0, 2)), "truncated": [False] * 3, "episode": ["x", "y", "y"]}
    pq.write_table(table(counted, **columns), tmp_path / "log.parquet")
    assert read_columns(tmp_path / "log.parquet").columns["truncated"].tolist() == [True, False, False]


def test_float64_is_kept_as_float32(tmp_path, counted):
    pq.write_table(table(counted, rewards=pa.array(np.array([0.1, 0.2, 0.3]))), tmp_path / "log.parquet")
    assert read_columns(tmp_path / "log.parquet").columns["rewards"].dtype == np.float32


def test_a_file_that_is_no_parquet_is_one_sentence(tmp_path):
    (tmp_path / "log.parquet").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a readable Parquet file"):
        load_transition_dataset(tmp_path / "log.parquet")


def test_other_numeric_columns_stay_beside(tmp_path, counted):
    pq.write_table(table(counted, weights=pa.array([7, 8, 9])), tmp_path / "log.parquet")
    assert torch.equal(load_transition_dataset(tmp_path / "log.parquet").columns["weights"], torch.tensor([7, 8, 9]))


STEPS = """episode,t,obs,action,reward
2,1,21,0,5
1,2,12,1,3
1,0,10,0,1
2,0,20,1,4
1,1,11,1,2
"""


@pytest.mark.parametrize("name", ["t", "Step"])
def test_rows_out_of_the_order_of_their_steps_get_the_option_that_sorts_them(tmp_path, name):
    (tmp_path / "log.csv").write_text(STEPS.replace(",t,", f",{name},"))
    (warning,) = [each for each in inspect_source(tmp_path / "log.csv").findings if each.kind == "unordered"]
    assert warning.sentence.startswith(f"rows are not in the order of episode and {name!r}; sort them with --columns ")
    assert f"time={name} if" in warning.fix
    sorted_rows = read_columns(tmp_path / "log.csv", columns={"time": name})
    assert sorted_rows.columns["rewards"].tolist() == [4, 1, 2]  # of the rows with a next observation
    assert "unordered" not in [kind for kind, _, _ in sorted_rows.labels.warnings]


@pytest.mark.parametrize(
    ("old", "new", "columns"),
    [
        ("", "", {"time": ""}),  # ignored by the user
        ("1,2,12", "1,0,12", {}),  # repeated within an episode: no count of steps
        (",t,", ",u,", {}),
    ],
)
def test_other_columns_are_not_offered_as_steps(tmp_path, old, new, columns):
    (tmp_path / "log.csv").write_text(STEPS.replace(old, new))
    found = inspect_source(tmp_path / "log.csv", columns=columns).findings
    assert "unordered" not in [each.kind for each in found]


def test_ordered_steps_are_no_warning(tmp_path):
    header, *rows = STEPS.splitlines()
    (tmp_path / "log.csv").write_text("\n".join([header, *sorted(rows)]))
    assert read_columns(tmp_path / "log.csv").labels.warnings == ()


@pytest.mark.parametrize(
    ("cells", "fix"),
    [
        (["5 %", "6 %"], "write numbers without units; if its values are names, read it as a category with"),
        (["$ 5.0", "6"], "write numbers without units; "),
        (
            ["5", "n.a."],
            "if its values are names, read it as a category with --categories x, or leave it out; leave cells",
        ),
        (["flat-1", "flat-2"], "if its values are names, "),
        (["2 000 kg", "1"], "if its values are names, "),
    ],
)
def test_cells_that_are_no_numbers_are_refused_with_what_to_do(tmp_path, cells, fix):
    rows = "".join(f"{cell},0,1\n" for cell in cells)
    (tmp_path / "log.csv").write_text(f"x,action,reward\n{rows}")
    with pytest.raises(TypeError, match=f"column 'x' must hold numbers, but row [01] holds '[^']+'; {fix}"):
        read_columns(tmp_path / "log.csv", columns={"obs": "x"})


def test_single_rows_without_a_next_observation_are_refused_with_the_option(tmp_path):
    rows = {"episode": [1, 2, 3], "obs": [0.5, 0.6, 0.7], "action": [0, 1, 0], "reward": [1.0, 2, 1]}
    pd.DataFrame(rows).to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match="if rows are whole episodes, name a column of ones with --columns dones="):
        load_transition_dataset(tmp_path / "log.csv")
    pd.DataFrame({**rows, "bought": 1}).to_csv(tmp_path / "log.csv", index=False)
    dataset = load_transition_dataset(tmp_path / "log.csv", columns={"dones": "bought"})
    assert dataset.columns["dones"].tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_float32_are_refused_without_a_warning_of_numpy(tmp_path):
    rows = pd.DataFrame({"obs": [0.5, 0.6], "action": [0, 1], "reward": [1e39, 1], "done": [0, 1], "truncated": [0, 0]})
    rows.to_csv(tmp_path / "log.csv", index=False)
    for read in (lambda: load_transition_dataset(tmp_path / "log.csv"), lambda: TransitionDataset.from_dataframe(rows)):
        with pytest.raises(ValueError, match="column 'rewards' is NaN or infinite in 1 of 2 rows"):
            read()
