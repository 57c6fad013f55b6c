"""Columns of a file have one use, and patterns of observations leave out those with another."""

import time
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from rl_training.data import read_columns
from rl_training.data.readers.names import choose_names, other_names, with_one_use

FANS = """ticket,when,temperature,load,fan,outcome,end
A,0,20,1,0,1,0
A,1,21,2,1,2,1
B,0,22,3,0,3,0
B,1,23,4,1,4,1
"""
USES = {"obs": "temperature", "actions": "fan", "rewards": "outcome", "dones": "end", "episodes": "ticket"}


@pytest.mark.parametrize(
    ("columns", "column", "uses"),
    [
        ({"obs": "temperature,ticket"}, "ticket", "obs and for episodes"),
        ({"obs": "temperature,fan"}, "fan", "obs and for actions"),
        ({"obs": "temperature,end"}, "end", "obs and for dones"),
        ({"rewards": "fan"}, "fan", "rewards and for actions"),
        ({"rewards": "when", "time": "when"}, "when", "rewards and for time"),
        ({"time": "fan"}, "fan", "actions and for time"),
        ({"actions": "ticket"}, "ticket", "actions and for episodes"),
    ],
)
def test_a_column_with_two_uses_is_refused(tmp_path, columns, column, uses):
    (tmp_path / "fans.csv").write_text(FANS)
    with pytest.raises(ValueError, match=f"fans.csv: column '{column}' is used for {uses}; leave it out of one"):
        read_columns(tmp_path / "fans.csv", columns=USES | columns)


@pytest.mark.parametrize(
    ("columns", "obs"),
    [
        ({"obs": "*", "time": "when"}, ("temperature", "load")),
        ({"obs": "*", "load": ""}, ("when", "temperature")),
        ({"obs": "load,when", "time": "when"}, ("load", "when")),  # a time in numbers may be an observation
        ({"obs": "load,outcome"}, ("load", "outcome")),
        ({"obs": "load,*"}, ("load", "when", "temperature")),
    ],
)
def test_a_pattern_of_observations_leaves_out_columns_with_another_use(tmp_path, columns, obs):
    (tmp_path / "fans.csv").write_text(FANS)
    assert read_columns(tmp_path / "fans.csv", columns=USES | columns).labels.names["obs"] == obs


@pytest.mark.parametrize("columns", [{"obs": "load,when,load"}, {"obs": "when", "actions": "fan,load,fan"}])
def test_a_column_that_is_listed_twice_is_refused(tmp_path, columns):
    (tmp_path / "fans.csv").write_text(FANS)
    with pytest.raises(ValueError, match=r"fans.csv: column '(load|fan)' is listed twice in (obs|actions); list it"):
        read_columns(tmp_path / "fans.csv", columns=USES | columns)


@pytest.mark.parametrize("name", ["time", "dones", "truncated", "rewards"])
def test_a_name_of_one_column_refuses_two(tmp_path, name):
    (tmp_path / "fans.csv").write_text(FANS)
    with pytest.raises(ValueError, match=f"fans.csv: {name} takes one column, got when,load; choose one with"):
        read_columns(tmp_path / "fans.csv", columns=USES | {name: "when,load"})


ARRAYS: dict[str, Any] = {
    "x": np.arange(6.0), "y": np.arange(6.0) ** 2, "u": np.linspace(-1, 1, 6), "reward": np.ones(6),
    "terminated": np.array([0, 0, 1, 0, 0, 1]), "done": np.array([0, 0, 1, 0, 0, 1]), "run": np.arange(6) // 3,
}  # fmt: skip
ROLES = {"obs": "x", "actions": "u", "episodes": "run"}


@pytest.fixture(params=["npz", "hdf5"])
def arrays(tmp_path, request):
    """A file of arrays."""
    path = tmp_path / f"log.{request.param}"
    if request.param == "npz":
        np.savez(path, **ARRAYS)
        return path
    with h5py.File(path, "w") as file:
        file.update(ARRAYS)
    return path


@pytest.mark.parametrize(("columns", "column"), [({"obs": "x,run"}, "run"), ({"rewards": "u"}, "u")])
def test_an_array_with_two_uses_is_refused(arrays, columns, column):
    with pytest.raises(ValueError, match=f"column '{column}' is used for (obs|rewards) and for"):
        read_columns(arrays, columns=ROLES | columns)


def test_a_pattern_leaves_out_arrays_with_another_use_or_the_name_of_one(arrays):
    for extra in ({}, {"dones": ""}, {"rewards": "0"}):
        obs = read_columns(arrays, columns=ROLES | extra | {"obs": "*"}).columns["obs"]
        assert (obs[:, 0] ** 2).tolist() == obs[:, 1].tolist()  # x and y
        assert obs.shape[1] == 2


def test_a_pattern_leaves_out_the_next_value_of_its_columns(tmp_path):
    (tmp_path / "log.csv").write_text("x,next_x,next_stop,action,reward,done,timeout\n1,2,7,0,1,0,0\n2,3,7,1,1,1,0\n")
    assert read_columns(tmp_path / "log.csv", columns={"obs": "*"}).labels.names["obs"] == ("x", "next_stop")
    assert read_columns(tmp_path / "log.csv", columns={"obs": "x,next_x"}).columns["obs"].tolist() == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("column", "given"), [("action_prob", {}), ("action_logprob", {}), ("propensity", {"action_prob": "propensity"})]
)
def test_a_pattern_leaves_out_the_probability_of_the_logged_action(tmp_path, column, given):
    (tmp_path / "log.csv").write_text(f"x,y,{column},action,reward,done,timeout\n1,5,-0.5,0,1,0,0\n2,6,-0.7,1,1,1,0\n")
    stored = read_columns(tmp_path / "log.csv", columns={"obs": "*"} | given)
    assert stored.labels.names["obs"] == ("x", "y")
    assert stored.columns[next(iter(given), column)].tolist() == [-0.5, -0.7]
    named = read_columns(tmp_path / "log.csv", columns={"obs": f"x,{column}"})
    assert named.columns["obs"].shape == (2, 2)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_pattern_leaves_out_the_index_that_pandas_writes(tmp_path, ending):
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [5, 6, 7], "action": [0, 1, 0], "reward": [1, 1, 1], "done": [0, 0, 1]})
    shuffled, path = frame.loc[[2, 0, 1]], tmp_path / f"log.{ending}"
    for count in (1, 2):  # read and written again, the index is `Unnamed: 0`
        (shuffled.to_csv if ending == "csv" else shuffled.to_parquet)(path)
        stored = read_columns(path, columns={"obs": "*", "truncated": "done"})
        assert stored.labels.names["obs"] == ("x", "y"), count
        shuffled = (pd.read_csv if ending == "csv" else pd.read_parquet)(path).loc[[2, 0, 1]]


def test_a_pattern_leaves_out_the_actions_of_ogbench(tmp_path):
    np.savez(tmp_path / "raw.npz", observations=np.ones((4, 2)), actions=np.zeros((4, 1)), terminals=[0, 1, 0, 1])
    assert read_columns(tmp_path / "raw.npz", columns={"obs": "*"}).columns["obs"].shape == (2, 2)


@pytest.mark.parametrize("obs", ["*", "x,flow, m3/h", "flow, m3/h,x", ["flow, m3/h", "x"]])
def test_names_of_columns_may_have_commas(tmp_path, obs):
    (tmp_path / "log.csv").write_text('x,"flow, m3/h",action,reward,done,timeout\n1,5,0,1,0,0\n2,6,1,1,1,0\n')
    stored = read_columns(tmp_path / "log.csv", columns={"obs": obs})
    assert set(stored.labels.names["obs"]) == {"x", "flow, m3/h"}
    assert stored.columns["obs"].sum(1).tolist() == [6, 8]


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("reader", ["pyarrow", "without pyarrow"])
def test_names_of_columns_may_have_line_breaks(tmp_path, monkeypatch, delimiter, first, reader):
    if reader == "without pyarrow":
        monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)
    frame = pd.DataFrame(
        {"flow\n\n[m3/h]": [5.5, 6, 7], "x": [1, 2, 3], "action": [0, 1, 0], "reward": 1, "end": [0, 0, 1]}
    )
    frame = frame[[*frame.columns[first:], *frame.columns[:first]]]
    frame.to_csv(tmp_path / "log.csv", index=False, sep=delimiter)
    stored = read_columns(tmp_path / "log.csv", columns={"obs": "x,flow\n\n[m3/h]", "truncated": "end"})
    assert stored.rows == 3
    assert stored.columns["obs"].tolist() == [[1, 5.5], [2, 6]]


@pytest.mark.parametrize(("column", "name"), [("Done", "dones"), ("Terminated", "dones"), ("Truncated", "truncated")])
def test_columns_that_are_ignored_because_of_their_capitals_are_reported(tmp_path, column, name):
    (tmp_path / "log.csv").write_text(f"x,y,action,reward,episode,{column}\n1,5,0,1,0,0\n2,6,1,1,0,1\n3,7,0,1,1,1\n")
    stored = read_columns(tmp_path / "log.csv", columns={"obs": "*"})
    assert stored.labels.names["obs"] == ("x", "y")
    fix = f"use --columns {name}={column}, or {column}= to ignore it"
    assert stored.labels.warnings == (("unread_name", f"{column!r} is not read as {name}", fix),)
    for given in ({name: column}, {name: ""}, {column: ""}):
        assert read_columns(tmp_path / "log.csv", columns={"obs": "x,y"} | given).labels.warnings == ()


def test_an_error_proposes_columns_that_differ_by_capitals(tmp_path):
    (tmp_path / "log.csv").write_text("x,y,Action,Reward\n1,5,0,1\n")
    with pytest.raises(ValueError, match="such as actions=Action --columns rewards=Reward"):
        read_columns(tmp_path / "log.csv", columns={"obs": "x,y"})


def test_thousands_of_columns_are_matched_in_little_time():
    columns = [f"c{number}" for number in range(3000)]
    stored = [*columns, "action", "reward"]
    start = time.perf_counter()
    names = with_one_use(choose_names(stored, {"obs": "*"}, "log"), {"obs": "*"}, stored, "log")
    assert names["obs"] == ",".join(columns)
    assert other_names(stored, names, {}) == []
    assert time.perf_counter() - start < 1.5  # 4 s if the columns were searched again for each of them
