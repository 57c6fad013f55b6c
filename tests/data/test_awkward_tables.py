"""Ten awkward tables: each is read, or refused with the option to type."""

from pathlib import Path

import numpy as np
import pytest

from rl_training.data import load_transition_dataset, read_columns, save_transition_dataset
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.readers.options import table_options

TABLES = Path(__file__).parent / "tables"


@pytest.fixture(params=["pyarrow", "without pyarrow"], autouse=True)
def reader(request, monkeypatch):
    if request.param == "without pyarrow":
        monkeypatch.setattr("rl_training.data.readers.csv._arrow_table", lambda *_: None)


def kinds(report):
    return {finding.kind for finding in report.findings}


def sentences(report):
    return " ".join([*report.notes, *(each.sentence for each in (*report.left_out, *report.findings))])


def test_there_are_ten():
    assert len(list(TABLES.iterdir())) == 10


def test_semicolons_and_decimal_commas_are_detected_and_reported():
    report = inspect_source(TABLES / "semicolon.csv")
    assert report.trainable
    assert "--csv-dialect semicolon_decimal_comma" in sentences(report)
    assert load_transition_dataset(TABLES / "semicolon.csv").columns["obs"][0].tolist() == pytest.approx([0.13, -0.13])


def test_a_wrong_dialect_is_refused_with_the_option():
    with pytest.raises(ValueError, match=r"row 0 has 4 cells, the header has 1; .* --csv-dialect"):
        load_transition_dataset(TABLES / "semicolon.csv", csv_dialect="comma")
    with pytest.raises(ValueError, match="csv_dialect must be one of auto, comma, semicolon"):
        load_transition_dataset(TABLES / "semicolon.csv", csv_dialect="excel")


def test_a_compressed_table_is_read():
    dataset = load_transition_dataset(TABLES / "compressed.csv.gz")
    assert (len(dataset), dataset.spec.action_kind) == (12, "discrete")


def test_missing_cells_are_refused_with_the_option_and_left_out_by_number():
    report = inspect_source(TABLES / "missing.csv")
    assert not report.trainable
    assert "--allow nan" in sentences(report)
    dataset = load_transition_dataset(TABLES / "missing.csv", allow=["nan"])
    assert dataset.spec.action_kind == "discrete"  # integers, although one is missing
    assert dataset.columns["rewards"].tolist() == [2, 3, 0, 3, 0, 2, 3]
    assert dataset.notes == (
        "the actions are whole numbers of which some are missing, and they are read as Discrete; set --action-range "
        "LOW,HIGH if they are Box actions",
        "5 rows are left out, because a value is missing, NaN or infinite: rows 0, 1, 5, 6, 9",
    )  # row 0 leads to an observation that is missing


def test_named_actions_are_numbered_by_name():
    report = inspect_source(TABLES / "named_actions.csv")
    assert report.trainable
    assert "actions 0 to 2 are cool, heat, off" in sentences(report)
    dataset = load_transition_dataset(TABLES / "named_actions.csv")
    assert dataset.spec.categories == {"actions": ["cool", "heat", "off"]}
    assert dataset.columns["actions"][:3].tolist() == [1, 0, 2]


def test_the_order_of_actions_can_be_given():
    order = ["off", "cool", "heat", "vent"]
    dataset = load_transition_dataset(TABLES / "named_actions.csv", categories={"action": order})
    assert (dataset.spec.action_dim, dataset.spec.categories) == (4, {"actions": order})
    assert dataset.columns["actions"][:3].tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match=r"holds 'heat' in row 0, which is not among its categories off, cool; list"):
        load_transition_dataset(TABLES / "named_actions.csv", categories={"action": ["off", "cool"]})


def test_a_category_is_refused_with_the_option_and_becomes_one_hot():
    source, columns = TABLES / "categories.csv", {"obs": "temperature,machine"}
    assert "--columns, such as obs=temperature" in sentences(inspect_source(source))
    refused = inspect_source(source, columns=columns)
    assert "column 'machine' must hold numbers, but row 0 holds 'press'" in sentences(refused)
    assert "--categories machine" in sentences(refused)
    dataset = load_transition_dataset(source, columns=columns, categories=["machine"])
    assert dataset.spec.obs_names == ("temperature", "machine=lathe", "machine=press")
    assert dataset.spec.categories == {"machine": ["lathe", "press"]}
    assert dataset.columns["obs"][[0, 4], 1:].tolist() == [[0, 1], [1, 0]]


def test_rows_are_sorted_by_episode_and_time_and_gaps_are_reported():
    report = inspect_source(TABLES / "timestamps.csv")
    assert report.trainable
    assert kinds(report) == {"sorted", "time_gaps"}
    assert "before row 10; the longest is 3660 s; end episodes at gaps with --max-gap" in sentences(report)
    read = read_columns(TABLES / "timestamps.csv")
    assert read.columns["rewards"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert read.columns["timestamp"][:5].tolist() == [0, 60, 120, 180, 240]
    assert (read.left_out[0].rows.tolist(), "timestamp" in read.labels.names["obs"]) == ([9, 11], False)


def test_rows_are_sorted_by_a_time_column_that_is_also_named():
    named, guessed = (
        read_columns(TABLES / "timestamps.csv", columns=each) for each in ({"timestamp": "timestamp"}, {})
    )
    assert named.columns["obs"].tolist() == guessed.columns["obs"].tolist()


def test_a_missing_value_of_sorted_rows_is_found_in_the_file(tmp_path):
    lines = (TABLES / "timestamps.csv").read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[2], "NA", 1)
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert "'obs' (obs_0) is NaN or infinite in 1 of 10 rows, the first is row 2" in sentences(
        inspect_source(tmp_path / "log.csv")
    )


def test_rows_are_not_sorted_by_what_may_be_another_time(tmp_path):
    """An hour of the day decreases at midnight, and without ids nothing shows which rows belong together."""
    hours = "episode,obs,action,reward,time\n1,1,0,0,23\n1,2,1,1,0\n1,3,0,2,1\n"
    (tmp_path / "hours.csv").write_text(hours)
    report = inspect_source(tmp_path / "hours.csv")
    assert "'time' decreases within episodes; sort them with --columns time=time" in sentences(report)
    assert read_columns(tmp_path / "hours.csv").columns["rewards"].tolist() == [0, 1]
    assert read_columns(tmp_path / "hours.csv", columns={"time": "time"}).columns["rewards"].tolist() == [1, 2]
    mixed = "obs,action,reward,timeout,when\n1,0,0,0,2026-01-02\n2,1,1,0,2026-01-01\n3,0,2,1,2026-01-03\n"
    (tmp_path / "mixed.csv").write_text(mixed)
    assert "--columns episodes=NAME" in sentences(inspect_source(tmp_path / "mixed.csv"))


def test_a_converted_table_is_read_in_its_order(tmp_path):
    dataset = load_transition_dataset(TABLES / "timestamps.csv")
    save_transition_dataset(dataset, tmp_path / "log.parquet")
    assert load_transition_dataset(tmp_path / "log.parquet").fingerprint() == dataset.fingerprint()


def test_episodes_end_at_gaps():
    read = read_columns(TABLES / "timestamps.csv", options=table_options(max_gap=600))
    assert read.columns["rewards"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 4]
    assert np.flatnonzero(read.columns["truncated"]).tolist() == [4, 7]
    with pytest.raises(ValueError, match="no time column for max_gap; name it with --columns time=NAME"):
        read_columns(TABLES / "one_based.csv", options=table_options(max_gap=600))


def test_a_timestamp_among_the_observations_is_refused_or_remarked_on():
    source, text = TABLES / "time_as_observation.csv", TABLES / "timestamps.csv"
    assert "time_in_obs" in kinds(inspect_source(source))
    assert "leave it out of obs, and order the rows with --columns time=obs_0" in sentences(inspect_source(source))
    columns = {"obs": "obs_1,obs_2", "time": "obs_0"}
    assert inspect_source(source, columns=columns, max_gap=600).episodes == 2
    with pytest.raises(TypeError, match=r"holds timestamps, .* --columns obs=obs_0,obs_1"):
        load_transition_dataset(text, columns={"obs": "timestamp,obs_0,obs_1"})


def test_actions_from_1_are_recognised():
    report = inspect_source(TABLES / "one_based.csv")
    assert report.action_start == 1
    assert "--categories actions=0,1,2" in sentences(report)
    spec = load_transition_dataset(TABLES / "one_based.csv").spec
    assert (spec.action_dim, spec.action_start) == (3, 1)
    spec = load_transition_dataset(TABLES / "one_based.csv", categories={"actions": [0, 1, 2, 3]}).spec
    assert (spec.action_dim, spec.action_start, spec.categories) == (4, 0, {"actions": ["0", "1", "2", "3"]})


def test_a_time_column_of_other_text_is_refused(tmp_path):
    rows = [f"{step // 4},week {20 - step},{step},0.5,1" for step in range(12)]
    file = tmp_path / "german.csv"
    file.write_text("\n".join(["episode,Zeit,level,action,reward", *rows]))
    with pytest.raises(ValueError, match=r"'Zeit' must hold timestamps such as 2026-01-31T12:30:00, but row 0 holds"):
        load_transition_dataset(file, columns={"obs": "level", "time": "Zeit"}, action_range=(-1, 1))


def test_files_with_different_categories_may_share_actions_from_1(tmp_path):
    for kind in "AB":
        rows = [f"{step // 4},{step},{kind},{step % 3 + 1},1" for step in range(12)]
        (tmp_path / f"{kind}.csv").write_text("\n".join(["episode,level,kind,action,reward", *rows]))
    columns = {"obs": "level,kind"}
    spec = load_transition_dataset(tmp_path / "*.csv", columns=columns, categories=["kind"]).spec
    assert (spec.action_dim, spec.action_start, spec.categories) == (3, 1, {"kind": ["A", "B"]})


def test_scales_that_differ_by_orders_of_magnitude_are_remarked_on_with_the_option():
    report = inspect_source(TABLES / "scales.csv", columns={"obs": "pressure,valve"})
    assert report.trainable
    assert "entry 0 (pressure) of obs spans 8.48e+03" in sentences(report)
    assert "--set normalize_obs=true" in sentences(report)


def test_a_table_of_a_spreadsheet_is_read():
    read = read_columns(TABLES / "spreadsheet.csv")
    assert read.names["episodes"] == "episode"
    assert read.columns["obs"][0].tolist() == pytest.approx([-0.92, 0.68])
    assert (read.columns["dones"].sum(), "note" in read.columns, "checked" in read.columns) == (3, False, False)


def test_files_with_different_categories_share_all_of_them(tmp_path):
    header, row = "obs_0,action,reward,terminated\n", "{},{},1,{}\n"
    for name, actions in (("a", "xy"), ("b", "yz")):
        lines = [row.format(number, action, int(number == 1)) for number, action in enumerate(actions)]
        (tmp_path / f"{name}.csv").write_text(header.replace("terminated", "timeout,terminated") + "".join(
            line.replace(",1,", ",1,0,") for line in lines))  # fmt: skip
    together = load_transition_dataset([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert together.spec.categories == {"actions": ["x", "y", "z"]}
    assert together.columns["actions"].tolist() == [0, 1, 1, 2]
    assert load_transition_dataset(str(tmp_path / "*.csv")).spec == together.spec


def test_a_later_file_is_read_with_the_categories_of_the_first():
    spec = load_transition_dataset(TABLES / "named_actions.csv", categories={"action": ["off", "heat", "cool"]}).spec
    dataset = load_transition_dataset(TABLES / "named_actions.csv", spec=spec)
    assert dataset.columns["actions"][:3].tolist() == [1, 2, 0]


def flagged(folder, words, column="status"):
    """Two episodes of three rows, whose last rows hold the last of `words`."""
    no, yes = words
    rows = [f"{row // 3},{row},{row % 2},1,{yes if row % 3 == 2 else no}" for row in range(6)]
    (folder / "log.csv").write_text("\n".join([f"episode,obs,action,reward,{column}", *rows, ""]))
    return folder / "log.csv"


@pytest.mark.parametrize("words", [("false", "true"), ("No", "YES"), ("f", "t"), ("n", "Y"), ("0", "yes"), ("0", "1")])
@pytest.mark.parametrize("categories", [(), ("status",), ("dones",)])
def test_words_for_yes_and_no_mark_ends(tmp_path, words, categories):
    source = flagged(tmp_path, words)
    dataset = load_transition_dataset(source, columns={"dones": "status"}, categories=categories)
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("categories", [(), ("status",), ("dones",)])
def test_other_words_for_ends_are_refused_with_both_orders(tmp_path, categories):
    source = flagged(tmp_path, ("open", "closed"))
    message = (
        "'status' must hold 0 or 1, true or false, or yes or no, but row 0 holds 'open'; use --categories "
        "status=open,closed if 'closed' means terminated, or --categories status=closed,open if 'open' means terminated"
    )
    assert message in sentences(inspect_source(source, columns={"dones": "status"}, categories=categories))


@pytest.mark.parametrize("name", ["status", "dones"])
def test_the_second_of_two_words_marks_an_end(tmp_path, name):
    source, columns = flagged(tmp_path, ("open", "closed")), {"dones": "status"}
    dataset = load_transition_dataset(source, columns=columns, categories={name: ["open", "closed"]})
    assert dataset.columns["dones"].tolist() == [0, 0, 1, 0, 0, 1]
    assert "rows whose 'status' is 'closed' are terminated, those with 'open' are not" in dataset.notes
    with pytest.raises(ValueError, match=r"must have two values, not open, shut, closed; list two with --categories"):
        load_transition_dataset(source, columns=columns, categories={name: ["open", "shut", "closed"]})


def test_an_empty_flag_is_refused_by_row(tmp_path):
    source = flagged(tmp_path, ("", "yes"), "done")
    message = "'done' must hold 0 or 1, row 0 holds nan; 4 of 6 cells are empty: fill them with 0 or 1"
    assert message in sentences(inspect_source(source))


def test_integer_actions_with_missing_cells_have_no_bounds_to_guess():
    report = inspect_source(TABLES / "missing.csv", allow=["nan"])
    assert (report.trainable, kinds(report)) == (True, {"nan", "whole_actions"})
    assert report.columns["actions"].dtype == "int64"


def test_a_proposal_names_neither_ids_nor_times_nor_actions(tmp_path):
    header = "machine_id,name,timestamp,temperature,level,dose,reward,done,timeout"
    (tmp_path / "log.csv").write_text(f"{header}\n1,a,5,20.5,3,1,1,0,0\n1,a,6,20.5,3,0,1,1,0\n")
    proposal = sentences(inspect_source(tmp_path / "log.csv"))
    assert proposal.endswith("name the columns with --columns, such as obs=temperature,level --columns actions=dose")
    named = sentences(inspect_source(tmp_path / "log.csv", columns={"actions": "dose"}))
    assert named.endswith("name the columns with --columns, such as obs=temperature,level")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"obs": "temprature"}}, r"no column 'temprature' to use as obs; .*; did you mean 'temperature'\?"),
        ({"columns": {"epsiodes": "episode"}}, r"unknown column 'epsiodes'; did you mean episodes=episode\?"),
        ({"categories": ["machin"]}, r"no column 'machin' to read as a category; .*; did you mean 'machine'\?"),
        (
            {"categories": ["machine"]},
            "'machine' is not used, so --categories machine has no effect; add it to obs with --columns "
            "obs=temperature,machine, or leave out the option",
        ),
        (
            {"columns": {"obs": "temperature,machine"}, "categories": ["obs"]},
            "obs has the columns temperature, machine; name those to read as categories",
        ),
    ],
)
def test_a_mistyped_or_unused_name_is_refused(options, message):
    columns = {"obs": "temperature", **options.get("columns", {})}
    with pytest.raises(ValueError, match=message):
        load_transition_dataset(TABLES / "categories.csv", columns=columns, categories=options.get("categories"))
