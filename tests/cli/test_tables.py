"""Tables from the command line: names in `predict`, `export` and `evaluate --ope`, several files, and old runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from rl_training.cli import app
from rl_training.data import load_transition_dataset
from rl_training.data.readers.observations import read_observations
from rl_training.experiment.agent import load_agent
from rl_training.types import EnvSpec

TABLES = Path(__file__).parents[1] / "data" / "tables"
SHORT = ["--steps", "20", "--set", "hidden_sizes=[8]", "--set", "log=none", "--quiet"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "log.csv"
    numbers = np.random.default_rng(0)
    lines = ["episode;time;level;site;action;reward;terminated"]
    for row in range(60):
        level, site = str(round(numbers.normal(), 3)).replace(".", ","), ["north", "south"][row // 10 % 2]
        time = f"2026-01-{1 + row // 10:02}T00:{row % 10:02}:00"
        lines.append(f"{row // 10};{time};{level};{site};{numbers.choice(['up', 'down'])};1;{int(row % 10 == 9)}")
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def trained(table):
    target = table.parent / "run"
    run("train", "bc", "--dataset", table, "--columns", "obs=level,site", "--categories", "site", "--output", target,
        *SHORT)  # fmt: skip
    return target


def test_predict_takes_columns_and_returns_names(trained):
    single = json.loads(run("predict", trained, "--obs", '{"level": 0.5, "site": "north"}'))
    assert single in ("up", "down")
    several = '[{"level": 0.5, "site": "north"}, {"level": 1, "site": "south"}]'
    assert len(json.loads(run("predict", trained, "--obs", several))) == 2
    agent = load_agent(trained)
    rows = {"level": np.array([0.5, 1]), "site": np.array(["north", "south"])}
    assert agent.predict(rows).tolist() == json.loads(run("predict", trained, "--obs", several))
    assert agent.predict([0.5, 1, 0]) == single


def test_predict_reads_a_data_frame_by_its_names(trained):
    pandas = pytest.importorskip("pandas")
    agent = load_agent(trained)
    rows = {"site": ["north", "south"], "level": [0.5, 1.0]}
    frame = pandas.DataFrame(rows)
    expected = agent.predict(rows).tolist()
    assert agent.predict(frame).tolist() == expected
    assert [agent.predict(frame.iloc[0]), agent.predict(frame.iloc[1])] == expected  # rows by their names too
    assert agent.predict([frame.iloc[0], frame.iloc[1]]).tolist() == expected
    tuples = [*frame[["level", "site"]].itertuples()]
    assert [agent.predict(tuples[0]), agent.predict(tuples[1])] == agent.predict(tuples).tolist() == expected
    assert agent.predict(pandas.Series([0.5, 1, 0])) == expected[0]  # numbers without names, in the policy's order


def test_further_columns_are_ignored_and_named_once(trained, capsys):
    pandas = pytest.importorskip("pandas")
    agent = load_agent(trained)
    rows = {"site": ["north", "south"], "level": [0.5, 1.0]}
    expected = agent.predict(rows).tolist()
    assert capsys.readouterr().err == ""
    further = {"note": ["a", None], **rows, "reward": [0.0, 1.0]}
    assert agent.predict(pandas.DataFrame(further)).tolist() == expected
    assert capsys.readouterr().err == "obs: columns that the agent does not read are ignored: note, reward\n"
    single = [{"level": 0.5, "site": "north", "x": 1}, {"level": 1, "site": "south", "x": 2}]
    assert agent.predict(single).tolist() == expected
    assert capsys.readouterr().err == ""
    result = CliRunner().invoke(app, ["predict", str(trained), "--obs", json.dumps(single)])
    assert json.loads(result.stdout) == expected
    assert result.stderr == "obs: columns that the agent does not read are ignored: x\n"


def test_a_missing_value_of_an_observation_is_named(trained):
    for rows in ({"level": None, "site": "north"}, {"level": [0.5, np.nan], "site": ["north", "south"]}):
        with pytest.raises(ValueError, match=r"^obs holds NaN or infinite values in level$"):
            load_agent(trained).predict(rows)


@pytest.fixture(params=["log.csv", "log.csv.gz", "log.parquet"])
def observations(request, tmp_path):
    """Two observations in a table with another column, in another order than in the training data."""
    frame = pd.DataFrame({"site": ["north", "south"], "note": ["a", None], "level": [0.5, 1.0]})
    path = tmp_path / request.param
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep=";", decimal=",")
    return path


def test_predict_reads_the_columns_of_a_table(trained, observations):
    rows = '[{"level": 0.5, "site": "north"}, {"level": 1, "site": "south"}]'
    result = CliRunner().invoke(app, ["predict", str(trained), "--obs-file", str(observations)])
    assert result.stdout == run("predict", trained, "--obs", rows)
    assert result.stderr == f"{observations}: columns that the agent does not read are ignored: note\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("level,site\n1,west\n", "site must be one of north, south, got 'west'"),
        ("levle,site\n1,north\n", "has no column 'level', which the agent reads; it has"),
        ("obs,actions\n1,0\n", "join observations in one column, so give the table that it was made from"),
        ("level,site\n1,north\n,south\n", "column 'level' is empty in 1 of 2 rows, the first is row 1; fill it, or"),
        ("level,site\n1,north\n2,\n", "column 'site' is empty in 1 of 2 rows, the first is row 1"),
        ("level,site\n1,north\nhigh,south\n", "column 'level' must hold numbers, but row 1 holds 'high'"),
        ("level,site\n2026-01-01,north\n", "column 'level' must hold numbers, but it holds timestamps"),
        ("level,site\n", "is empty: it has no rows below a header"),
    ],
)
def test_a_table_that_predict_cannot_read_is_one_sentence(trained, tmp_path, text, message):
    (tmp_path / "obs.csv").write_text(text)
    result = CliRunner().invoke(app, ["predict", str(trained), "--obs-file", str(tmp_path / "obs.csv")])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


def test_a_run_without_column_names_reads_no_table(tmp_path):
    with pytest.raises(ValueError, match=r"observations have no column names; use a \.npy file"):
        read_observations(tmp_path / "obs.csv", EnvSpec((2,), "discrete", 2), "auto")


def test_probabilities_have_the_names_of_actions(trained):
    command = ["predict", trained, "--obs", '{"level": 0.5, "site": "north"}', "--probabilities"]
    printed, listed = json.loads(run(*command)), json.loads(run(*command, "--json"))
    assert listed["action_names"] == ["down", "up"] == list(printed["probabilities"])
    assert list(printed["probabilities"].values()) == listed["probabilities"]
    assert max(printed["probabilities"], key=printed["probabilities"].get) == printed["actions"]


def test_export_creates_its_folder_or_leaves_none(trained, table, tmp_path):
    run("export", trained, "--out", tmp_path / "new" / "folder" / "policy.pt2", "--data", table)
    assert (tmp_path / "new" / "folder" / "policy.pt2").is_file()
    run("export", trained, "--out", tmp_path / "other" / "policy.bin", code=2)
    assert not (tmp_path / "other").exists()


def test_a_split_by_text_that_is_no_time_is_refused(table, tmp_path):
    text = tmp_path / "text.csv"
    text.write_text(table.read_text().replace("2026-01-", "January "))
    command = ["data", "split", text, "--columns", "obs=level", "--time", "time", "--out", tmp_path / "parts"]
    result = CliRunner().invoke(app, [str(each) for each in command])
    assert result.exit_code == 2
    assert "such as 2026-01-31T12:30:00" in result.output


def test_predict_refuses_unknown_names(trained):
    agent = load_agent(trained)
    with pytest.raises(ValueError, match="site must be one of north, south, got 'west'"):
        agent.predict({"level": 0, "site": "west"})
    with pytest.raises(ValueError, match=r"obs has no column 'site', which the agent reads; it has \['level'\]$"):
        agent.predict({"level": 0})
    with pytest.raises(ValueError, match=r"it has \['levle', 'site'\]; rename 'levle'$"):
        agent.predict({"levle": 0, "site": "north"})
    with pytest.raises(ValueError, match=r"obs has no column 'level', which the agent reads; it has \[\]"):
        agent.predict({})
    for wrong in ("high", object()):
        with pytest.raises(ValueError, match=r"obs: level must hold numbers, got ['<](high|object)"):
            agent.predict({"level": wrong, "site": "north"})
    with pytest.raises(ValueError, match="obs must hold as many values for each column"):
        agent.predict({"level": [0, 1], "site": ["north"]})


def test_the_description_of_an_exported_policy_has_the_names(trained, tmp_path):
    run("export", trained, "--out", tmp_path / "policy.pt2", "--observations", "16")
    described = json.loads((tmp_path / "policy.json").read_text())
    assert described["inputs"][0]["columns"] == ["level", "site=north", "site=south"]
    assert described["inputs"][0]["categories"] == {"site": ["north", "south"]}
    assert described["outputs"][0]["names"] == ["down", "up"]


def test_evaluation_reads_data_with_the_categories_of_the_run(trained, table, tmp_path):
    north = tmp_path / "north.csv"
    north.write_text("\n".join(line for line in table.read_text().splitlines() if "south" not in line))
    assert "estimate" in run("evaluate", trained, "--ope", north, "--updates", "5")
    north.write_text(table.read_text().replace("south", "west"))
    result = CliRunner().invoke(app, ["evaluate", str(trained), "--ope", str(north), "--updates", "5"])
    assert result.exit_code == 2
    assert "holds 'west' in row 10, which is not among its categories north, south" in result.output


def test_converted_files_keep_the_names(table, tmp_path):
    out = run("data", "convert", table, tmp_path / "log.parquet", "--columns", "obs=level,site", "--categories", "site")
    assert "note: 'site' has 2 categories: north, south" in out
    spec = load_transition_dataset(tmp_path / "log.parquet").spec
    assert spec.obs_names == ("level", "site=north", "site=south")
    assert spec.categories == {"site": ["north", "south"], "actions": ["down", "up"]}
    assert json.loads(run("data", "check", tmp_path / "log.parquet", "--json"))["trainable"]


def test_a_file_with_other_categories_is_refused(table, tmp_path):
    options = ["--columns", "obs=level,site", "--categories", "site=south,north"]
    run("data", "convert", table, tmp_path / "other.parquet", *options)
    spec = load_transition_dataset(table, columns={"obs": "level,site"}, categories=["site"]).spec
    with pytest.raises(ValueError, match="'site' has the categories south, north here, but north, south in the train"):
        load_transition_dataset(tmp_path / "other.parquet", spec=spec)


def test_an_estimate_refuses_observations_in_another_order(trained, table):
    result = CliRunner().invoke(app, ["evaluate", str(trained), "--ope", str(table), "--columns", "obs=site,level"])
    assert result.exit_code == 2
    assert "observations are site=north,site=south,level, but those of the agent are level,site=north" in result.output


def test_a_config_holds_the_options_of_tables(trained):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert config["table"] == {"csv_dialect": "auto", "categories": {"site": []}, "max_gap": None}


def test_several_files_are_one_dataset(table, tmp_path):
    for name in ("a", "b"):
        shutil.copy(table, tmp_path / f"{name}.csv")
    options = ["--columns", "obs=level,site", "--categories", "site"]
    found = json.loads(run("data", "check", tmp_path / "a.csv", tmp_path / "b.csv", *options, "--json"))
    assert (found["rows"], found["source"]) == (120, [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
    out = run("data", "convert", tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "both.npz", *options)
    assert "120 transitions" in out
    run("data", "show", tmp_path / "a.csv", tmp_path / "b.csv", "--out", tmp_path / "both.png", *options)


def test_training_reports_how_the_table_was_read(table, tmp_path):
    source, target = TABLES / "one_based.csv", tmp_path / "run"
    result = CliRunner().invoke(app, ["train", "bc", "--dataset", str(source), "--output", str(target), *SHORT])
    assert "the actions are integers from 1" in result.stderr
    agent = load_agent(target)
    assert agent.predict([0.0, 0.0]) in (1, 2, 3)


def test_a_run_with_actions_from_1_resumes(tmp_path):
    target = tmp_path / "run"
    run("train", "bc", "--dataset", TABLES / "one_based.csv", "--output", target, *SHORT)
    run("resume", target, "--steps", "30")
    spec = load_agent(target).spec
    assert (spec.action_dim, spec.action_start) == (3, 1)


def test_an_empty_list_of_values_is_refused(table):
    result = CliRunner().invoke(app, ["data", "check", str(table), "--categories", "site="])
    assert result.exit_code == 2
    assert "--categories must be COLUMN or COLUMN=A,B,C, got 'site='" in result.output
