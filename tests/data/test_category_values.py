"""Values of categories: numbers, as they are written in the data."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.readers.cells import sorted_words
from rl_training.data.readers.observations import read_observations
from rl_training.data.spaces import named_rows
from rl_training.types import EnvSpec

SETPOINTS = [1012.345, 1012.346, 0.1234561, 0.1234562, 3.0, 1e-5]
NAMES = ["1e-05", "0.1234561", "0.1234562", "3", "1012.345", "1012.346"]


@pytest.fixture(params=["csv", "without pyarrow", "float64", "float32"])
def form(request, monkeypatch) -> str:
    if request.param == "without pyarrow":
        monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)
    return str(request.param)


def write(folder: Path, form: str, columns: dict[str, object]) -> Path:
    frame, is_csv = pd.DataFrame(columns), form in ("csv", "without pyarrow")
    if not is_csv:
        frame = frame.astype({name: form for name, column in frame.items() if column.dtype == float})
    path = folder / f"log.{'csv' if is_csv else 'parquet'}"
    (frame.to_csv if is_csv else frame.to_parquet)(path, index=False)
    return path


def log(**changes: object) -> dict[str, object]:
    columns = {"site": SETPOINTS, "level": np.arange(6.0), "action": [0, 1] * 3, "reward": 1.0, "done": [0, 1] * 3}
    return {**columns, "end": columns["done"], **changes}


def load(path: Path | list[Path], **options) -> TransitionDataset:
    columns = {"obs": "level,site", "truncated": "end"}
    return load_transition_dataset(path, columns=columns, **{"categories": ["site"], **options})


def words(spec: EnvSpec, values: object) -> list[str]:
    """The sites of rows that `predict` gets."""
    rows = named_rows(values, spec, print)
    return [NAMES[number] for number in np.atleast_2d(rows)[:, 1:].argmax(1)]


def test_numbers_that_differ_in_the_seventh_digit_are_different_categories(tmp_path, form):
    dataset = load(write(tmp_path, form, log()))
    assert dataset.spec.categories == {"site": NAMES}
    assert words(dataset.spec, {"level": np.zeros(6), "site": SETPOINTS}) == [NAMES[n] for n in (4, 5, 1, 2, 3, 0)]
    actions = load(write(tmp_path, form, log(action=SETPOINTS)), categories=["action", "site"])
    assert actions.spec.categories == {"actions": NAMES, "site": NAMES}


def test_predict_reads_a_category_of_numbers_in_every_form(tmp_path, form):
    spec = load(write(tmp_path, form, log())).spec
    frame = pd.DataFrame({"level": 0.0, "site": [3.0, 0.1234561]})
    expected = ["3", "0.1234561"]
    assert words(spec, frame) == words(spec, frame.astype("float32")) == expected
    assert words(spec, frame.astype({"site": object})) == expected
    assert words(spec, [{"level": 0, "site": value} for value in (3, 0.1234561)]) == expected
    assert words(spec, [{"level": 0, "site": value} for value in ("3", "0.1234561")]) == expected
    assert [words(spec, row)[0] for row in frame.itertuples()] == expected
    assert words(spec, read_observations(write(tmp_path, form, dict(frame.items())), spec, "auto")) == expected
    with pytest.raises(ValueError, match=r"site must be one of 1e-05, .*, got 3.5"):
        named_rows({"level": 0, "site": 3.5}, spec, print)


@pytest.mark.parametrize("given", [[0.0, 0.5, 1.0], ["1.0", "0.50", "0"]])
def test_given_values_may_be_written_in_another_way(tmp_path, form, given):
    values = [0.0, 0.5, 1.0] * 2
    path = write(tmp_path, form, log(action=values, site=values))
    dataset = load(path, categories={"action": given, "site": given})
    assert dataset.columns["actions"].tolist() == ([0, 1, 2] if given[0] == 0 else [2, 1, 0]) * 2
    assert dataset.spec.categories == {name: [str(each) for each in given] for name in ("actions", "site")}
    one_hot = dataset.columns["obs"][:, 1:].argmax(1).tolist()
    assert one_hot == dataset.columns["actions"].tolist()
    rows = [{"level": 0.0, "site": value} for value in values]
    assert np.array_equal(named_rows(rows, dataset.spec, print)[:, 1:].argmax(1), one_hot)
    read = read_observations(path, dataset.spec, "auto")
    assert np.array_equal(named_rows(read, dataset.spec, print)[:, 1:].argmax(1), one_hot)


def test_noise_in_the_last_digit_makes_no_category(tmp_path):
    values = [0.3, 0.1 + 0.2, 0.1 * 3, 1.0, 0.7, 0.1 * 7]
    assert load(write(tmp_path, "float64", log(site=values))).spec.categories == {"site": ["0.3", "0.7", "1"]}


def test_values_of_equal_number_are_always_in_the_same_order():
    """As of two files, one with booleans; a set of them has another order in every process."""
    orders = [sorted_words(words) for words in permutations(["2", "True", "1", "False", "0"])]
    assert orders == [["0", "False", "1", "True", "2"]] * 120


def test_a_value_that_is_not_known_is_named_with_its_row(tmp_path, form, monkeypatch):
    monkeypatch.setattr("rl_training.data.readers.csv.ROWS", 2)
    path = write(tmp_path, form, log())
    with pytest.raises(ValueError, match=r"'site' holds '0.1234562' in row 3, which is not among its categories"):
        load(path, categories={"site": ["1012.345", "1012.346", "0.1234561"]})


@pytest.mark.parametrize("gap", [False, True])
def test_booleans_are_the_same_categories_with_and_without_a_missing_cell(tmp_path, form, gap):
    pumps = np.array([True, False, None if gap else True, True, False, True], object if gap else bool)
    path = write(tmp_path, form, log(site=pumps))
    frame = TransitionDataset.from_dataframe(
        pd.DataFrame(log(site=pumps)), obs=["level", "site"], truncated="end", categories=["site"], allow=["nan"]
    )
    (tmp_path / "whole").mkdir()
    other = write(tmp_path / "whole", form, log(site=[False, True] * 3))
    for dataset in (load(path, allow=["nan"]), load([path, other], allow=["nan"]), frame):
        assert dataset.spec.categories == {"site": ["False", "True"]}
        expected = [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]] if gap else [[0, 1], [1, 0], [0, 1], [0, 1], [1, 0], [0, 1]]
        assert dataset.columns["obs"][: len(expected), 1:].tolist() == expected
        for pump in (True, "True", 1, np.True_):
            assert named_rows({"level": 0, "site": pump}, dataset.spec, print).tolist() == [0, 0, 1]
        some = pd.DataFrame({"level": 0, "site": np.array([True, None], object)})
        assert named_rows(some[:1], dataset.spec, print).tolist() == [[0, 0, 1]]
        with pytest.raises(ValueError, match="site must be one of False, True, got None"):
            named_rows(some, dataset.spec, print)


def test_booleans_are_the_categories_0_and_1(tmp_path, form):
    path = write(tmp_path, form, log(site=np.array([True, False, None, True, False, True], object)))
    names = ("level", "site=0", "site=1")
    spec = EnvSpec((3,), "discrete", 2, obs_names=names, categories={"site": ["0", "1"]})
    dataset = load(path, categories=None, spec=spec, allow=["nan"])
    assert dataset.columns["obs"][:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]
    assert named_rows({"level": 0, "site": True}, spec, print).tolist() == [0, 0, 1]


def test_booleans_with_gaps_are_numbers_elsewhere(tmp_path, form):
    columns = log(site=1.0, action=np.array([True, None, False, True, False, True], object), pump=[True, False] * 3)
    dataset = load(write(tmp_path, form, columns), categories=None, allow=["nan"])
    assert dataset.columns["actions"].tolist() == [1, 0, 1, 0, 1]
    assert dataset.columns["pump"].tolist() == [1, 1, 0, 1, 0]


def test_booleans_stay_booleans_where_later_rows_have_0_and_1(tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)
    monkeypatch.setattr("rl_training.data.readers.csv.ROWS", 3)
    loaded = load(write(tmp_path, "csv", log(site=["true", "false", "true", "0", "1", ""])), allow=["nan"])
    assert loaded.spec.obs_names == ("level", "site=False", "site=True")
