"""inspect_columns reports every fault of a file's columns; check_dataset warns about data that can be trained on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, check_dataset, load_transition_dataset
from rl_training.data.datasets.actions import derive_spec
from rl_training.data.datasets.checks import inspect_columns, inspect_source
from rl_training.data.datasets.report import DatasetReport, Distribution
from rl_training.data.datasets.validation import REPAIRABLE, DatasetError
from rl_training.data.readers.rows import StoredColumns
from rl_training.types import EnvSpec

TORQUE = EnvSpec((1,), "box", 1, "float32", (1,), (-2.0,), (2.0,))


def inspect(columns: dict[str, np.ndarray], **options: Any) -> DatasetReport:
    stored = StoredColumns(columns=columns, names={name: name for name in columns}, rows=len(columns["obs"]), spec=None)
    return inspect_columns(stored, **options)


def kinds(report: DatasetReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity) for finding in report.findings]


def test_sound_data_is_counted_and_raises_no_doubt(counted):
    report = inspect(counted([1, 2, 3, 4, 5], dones=(1,), truncated=(4,)))
    assert (report.rows, report.transitions, report.episodes) == (5, 5, 2)
    assert (report.terminals, report.timeouts, report.duplicates) == (1, 1, 0)
    assert report.returns == Distribution(3, 5.25, 7.5, 9.75, 12, 7.5)  # 1 + 2 and 3 + 4 + 5
    assert report.lengths == Distribution(2, 2.25, 2.5, 2.75, 3, 2.5)
    assert (report.columns["obs"].low, report.columns["obs"].high) == ((0,), (12,))
    assert (report.findings, report.trainable) == ((), True)


def test_where_the_data_ends_an_episode_is_cut(counted):
    report = inspect(counted([1, 2, 3], dones=(0,)))
    assert (report.terminals, report.timeouts) == (1, 1)


def test_every_fault_is_reported_at_once(counted):
    columns = counted([1, 2, 3, 4], truncated=())
    columns["rewards"][2] = np.nan
    columns["next_obs"][1] = np.inf
    columns["actions"][3] = 7
    report = inspect(columns, spec=TORQUE)
    assert kinds(report) == [("nan", "error"), ("nan", "error"), ("no_episode_end", "error"), ("out_of_range", "error")]
    assert [finding.text for finding in report.findings] == [
        "column 'rewards' is NaN or infinite in 1 of 4 rows, the first is row 2",
        "column 'next_obs' is NaN or infinite in 1 of 4 rows, the first is row 1",
        "no row ends an episode: dones and truncated are all 0 or missing",
        "actions are outside their bounds in 1 of 2 rows; the farthest is row 3 with 7, allowed is -2 to 2",
    ]
    assert (report.transitions, report.trainable) == (2, False)


def test_ends_that_are_only_guessed_are_reported_as_that(counted, tmp_path):
    columns = counted([1, 2, 3, 4], truncated=(1, 3))
    np.savez(tmp_path / "log.npz", **{name: columns[name] for name in ("obs", "actions", "rewards", "next_obs")})
    (refused,) = inspect_source(tmp_path / "log.npz").findings
    assert refused.text.startswith("no column marks episode ends; 1 ends were inferred from jumps in next_obs")
    assert "accept the inferred ends with --allow no_episode_end" in refused.fix
    report = inspect_source(tmp_path / "log.npz", allow=("no_episode_end",))
    assert report.findings[0].fix == "episodes end only at jumps in next_obs and at the ends of files"
    assert report.episodes == 2


def test_columns_are_reported_by_their_names_in_the_file(counted, tmp_path):
    columns = counted([1, 2, 3, 4], dones=(1, 3)) | {"speed": np.arange(4.0)}
    np.savez(tmp_path / "log.npz", **{name: column for name, column in columns.items() if name != "truncated"})
    names = {name: column.stored_as for name, column in inspect_source(tmp_path / "log.npz").columns.items()}
    assert names == {"obs": "obs", "actions": "actions", "rewards": "rewards", "next_obs": "next_obs", "dones": "dones",
                    "speed": "speed", "truncated": None}  # fmt: skip


def test_an_allowed_fault_is_a_warning_that_says_what_is_done(counted):
    columns = counted([1, 2, 3, 4])
    columns["actions"][3] = 7
    report = inspect(columns, spec=TORQUE, allow=("out_of_range", "no_episode_end"))
    assert kinds(report) == [("no_episode_end", "warning"), ("out_of_range", "warning")]
    assert report.findings[1].fix == "they are clipped"
    assert report.trainable


def test_a_range_given_by_hand_goes_before_the_environments(counted):
    columns = counted([1, 2, 3], dones=(2,))  # actions -1, 0, 1
    assert kinds(inspect(columns, spec=TORQUE, action_range=(-0.5, 1.0))) == [("out_of_range", "error")]
    assert kinds(inspect(columns, spec=TORQUE, action_range=((-1.0,), (1.0,)))) == []


def test_next_actions_must_lie_in_the_range_too(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"next_actions": np.full((3, 1), 3.0, np.float32)}
    (finding,) = inspect(columns, spec=TORQUE).findings
    assert (finding.kind, finding.severity) == ("out_of_range", "error")
    assert finding.text.startswith("next_actions are outside their bounds in 3 of 3 rows")


@pytest.mark.parametrize(("actions", "found"), [([0, -1, 2], "-1 to 2"), ([0, -1, 0], "-1 to 0")])
def test_choices_below_0_are_reported_as_they_are_and_can_be_those_of_an_environment(counted, actions, found):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions)}
    (finding,) = inspect(columns).findings
    assert finding.text == (
        f"actions are integers from {found}, but Discrete actions start at 0 unless the environment is known: "
        "1 of 3 rows are negative, the first is row 1"
    )
    assert "name the environment if its actions start at -1, or set --action-range" in finding.fix
    assert inspect(columns, spec=EnvSpec((1,), "discrete", 4, action_start=-1)).trainable
    assert inspect(columns, action_range=(-2.0, 2.0)).trainable


def test_bounds_that_must_be_guessed_are_reported(counted):
    columns = counted([1, 2, 3], dones=(2,))
    columns["actions"] *= 30
    (finding,) = inspect(columns).findings
    assert (finding.kind, finding.severity) == ("guessed_bounds", "warning")
    assert finding.text == "the action bounds are unknown; the largest magnitude in the data (30) is used"


def test_bounds_of_actions_that_are_never_negative_are_reported_below_1_too(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0.0], [0.5], [1.0]], np.float32)}
    (finding,) = inspect(columns).findings
    assert finding.text == "the action bounds are unknown; -1 to 1 is used, although no action is below 0"
    assert kinds(inspect(columns, action_range=(0.0, 1.0))) == []


@pytest.mark.parametrize(
    ("actions", "found"),
    [([0, 1, 2], True), ([0, 1, 1], True), ([0, 1, 1.5], False), ([-1, 0, 1], False), ([2, 2, 2], False)],
)
def test_whole_numbers_in_floats_may_be_discrete_actions(counted, actions, found):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions, np.float32)}
    texts = [each.text for each in inspect(columns).findings if each.kind == "whole_actions"]
    number = len({*actions})
    text = f"all actions are floats of {number} whole numbers, and they are read as Box actions"
    assert texts == ([text] if found else [])


@pytest.mark.parametrize(
    ("second", "found"), [([0, 1, 2], True), ([0, 0, 0], True), ([0, 1, 1.5], False), ([0, 1, -1], False)]
)
def test_floats_of_choices_in_several_columns_are_reported_as_box_actions(counted, second, found):
    actions = np.array([[1, 2, 3], second], np.float32).T
    findings = inspect(counted([1, 2, 3], dones=(2,)) | {"actions": actions}).findings
    texts = [each.text for each in findings if each.kind == "whole_actions"]
    assert texts == ["all actions are floats of whole numbers in 2 columns, and they are read as Box actions"] * found


def test_integers_in_several_columns_are_choices_unless_they_have_a_range(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0, 1], [1, 2], [2, 0]])}
    assert inspect(columns).findings == ()
    assert inspect(columns, action_range=(0.0, 2.0)).findings == ()
    (finding,) = inspect({**columns, "actions": columns["actions"] - 1}).findings
    assert finding.text == (
        "actions are integers from -1 to 1, but MultiDiscrete actions start at 0 unless the environment is known: "
        "2 of 3 rows are negative, the first is row 0"
    )


def test_integers_of_another_number_of_choices_are_refused(counted):
    columns = counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0, 1], [1, 2], [2, 0]])}
    three = EnvSpec((1,), "multi_discrete", 3, action_shape=(3,), action_sizes=(3, 3, 2), action_starts=(0, 0, 0))
    for spec, text in ((EnvSpec((1,), "discrete", 3), "one integer"), (three, "3 integers")):
        (finding,) = inspect(columns, spec=spec).findings
        assert f"must be {text} per row, got shape (3, 2)" in finding.text
        assert "--action-range LOW,HIGH" in finding.fix


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        ([[1, 0, 0], [0, 0, 1], [0, 1, 0]], True),
        ([[1, 0, 0], [0, 1, 1], [0, 1, 0]], False),
        ([[1, 0, 0], [0, 0, 1], [0, 0, 0]], False),
        ([[1, 0], [0, 1], [0, 1]], False),  # two switches may exclude each other
    ],
)
def test_one_hot_integers_are_reported(counted, actions, found):
    findings = inspect(counted([1, 2, 3], dones=(2,)) | {"actions": np.array(actions)}).findings
    assert [each.kind for each in findings if each.kind != "constant_column"] == ["one_hot_actions"] * found


def test_training_reports_guessed_bounds_too(counted, tmp_path):
    np.savez(tmp_path / "data.npz", **(counted([1, 2, 3], dones=(2,)) | {"actions": np.array([[0.0], [0.5], [1.0]])}))
    (note,) = load_transition_dataset(tmp_path / "data.npz").notes
    assert note.startswith("the action bounds are unknown; -1 to 1 is used, although no action is below 0; set them")
    assert load_transition_dataset(tmp_path / "data.npz", action_range=(0, 1)).notes == ()


def test_numbers_that_never_change_are_reported(counted):
    columns = counted([1, 2, 3], dones=(2,))
    columns["obs"] = np.hstack([columns["obs"], np.full((3, 2), 5, np.float32)])
    columns["next_obs"] = np.hstack([columns["next_obs"], np.full((3, 2), 5, np.float32)])
    (finding,) = inspect(columns).findings
    assert finding.text == "2 of 3 dimensions of obs never change (dimension 1, 2)"


@pytest.mark.parametrize("row", [0, 63, 64, 128, 129])
def test_the_range_of_a_column_is_that_of_all_its_rows(counted, row):
    columns = counted([0] * 130, dones=(129,))
    columns["actions"] = np.zeros((130, 2), np.float32)
    columns["actions"][row] = [-7, 9]
    summary = inspect(columns).columns["actions"]
    assert (summary.low, summary.high) == ((-7, 0), (0, 9))


def test_pixels_are_summed_up_in_one_range(counted):
    frames = np.stack([np.full((8, 8), row, np.uint8) for row in range(4)])
    columns = counted([1, 2, 3], dones=(2,)) | {"obs": frames[:-1], "next_obs": frames[1:]}
    summary = inspect(columns).columns["obs"]
    assert (summary.shape, summary.low, summary.high) == ((8, 8), (0,), (2,))


def test_rows_recorded_twice_are_reported(counted):
    once = counted([1, 2, 3, 4], truncated=(3,))
    report = inspect({name: np.concatenate([column, column]) for name, column in once.items()})
    assert report.duplicates == 4
    assert kinds(report) == [("duplicates", "warning")]


def test_a_terminal_row_that_is_lived_through_is_a_doubled_terminal(counted):
    columns = counted([1, 2, 3, 4, 5, 6], dones=(2, 5))
    columns["dones"][[1, 4]] = True  # obs go on from there
    (finding,) = inspect(columns).findings
    assert finding.text == "2 episodes end with two terminal rows; the first such row is 1"
    columns["dones"][4] = False
    (finding,) = inspect(columns).findings
    assert finding.text == "1 episode ends with two terminal rows; the first such row is 1"


def test_episodes_that_all_terminate_at_one_length_look_like_time_limits(counted):
    ends = (10, 21, 32, 43)
    (finding,) = inspect(counted(list(range(44)), dones=ends)).findings
    assert finding.kind == "time_limits_as_terminals"
    assert finding.text.startswith("4 of 4 episodes terminate after exactly 11 rows and none is longer")
    assert inspect(counted(list(range(44)), truncated=ends)).findings == ()


def test_one_episode_is_too_few_to_look_like_a_time_limit(counted):
    assert inspect(counted(list(range(40)), dones=(39,))).findings == ()


def test_a_report_as_json_has_what_scripts_read(counted):
    report = inspect(counted([1, 1], dones=(1,))).to_json()
    assert {"rows", "transitions", "episodes", "terminals", "timeouts", "findings", "trainable"} < report.keys()
    assert report["findings"][0].keys() == {"kind", "severity", "text", "fix"}


def test_doubts_of_a_dataset_are_the_same_sentences(counted):
    columns = counted([1, 1, 1], dones=(2,))
    (finding,) = inspect(columns).findings
    assert check_dataset(TransitionDataset.from_dict(columns)) == [finding.sentence]
    assert finding.text == "every reward is 1: actions differ only by when episodes terminate"


def test_sound_data_raises_no_doubt(counted):
    assert check_dataset(TransitionDataset.from_dict(counted([1, 2, 3, 4], dones=(1,), truncated=(3,)))) == []


def test_data_without_any_episode_end_is_reported(counted):
    (warning,) = check_dataset(TransitionDataset.from_dict(counted([1, 2, 3])))
    assert warning == (
        "no row ends an episode: dones and truncated are all 0 or missing; episodes end only at jumps in next_obs and "
        "at the ends of files"
    )


def test_an_episode_end_that_no_flag_marks_is_reported_with_its_first_row(counted):
    dataset = TransitionDataset.from_dict(counted([1, 2, 3, 4], truncated=(1, 3)))
    unmarked = TransitionDataset({**dataset.columns, "truncated": torch.tensor([0.0, 0.0, 0.0, 1.0])})
    (warning,) = check_dataset(unmarked)
    assert warning.startswith("next_obs does not match the next row in 1 of 4 rows, the first is row 1")


def test_shuffled_rows_are_reported(counted):
    every_row_ends = counted(list(range(12)), truncated=tuple(range(12)))
    (warning,) = check_dataset(TransitionDataset.from_dict(every_row_ends))
    assert warning.startswith("12 rows form 12 episodes: rows look shuffled")


def test_single_decisions_that_terminate_are_no_shuffled_rows(counted):
    assert inspect(counted(list(range(12)), dones=tuple(range(12)))).findings == ()


@pytest.mark.parametrize(("number", "found"), [(20, False), (21, True)])
def test_many_integer_actions_may_be_amounts(counted, number, found):
    columns = counted([1.0, 2.0] * number, dones=(2 * number - 1,)) | {"actions": np.arange(2 * number) % number}
    texts = [each.text for each in inspect(columns).findings if each.kind == "whole_actions"]
    assert texts == [f"the actions are {number} whole numbers, and they are read as choices without an order"] * found
    assert all(each.kind != "whole_actions" for each in inspect(columns, action_range=(0, number)).findings)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_smallest_datasets_can_be_inspected(counted, rows):
    assert inspect(counted([1.0] * rows, dones=(rows - 1,))).episodes == 1


FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "nan": {"rewards": np.array([0, np.nan, 2, 3, 4, 5])},
    "all nan": {"rewards": np.full(6, np.nan)},
    "out_of_range": {"actions": np.array([0, 0, 9, 0, 0, 0.5])},
    "fractions for choices": {"actions": np.array([0, -1, 2, 0, 0, 1])},
    "no_episode_end": {"dones": np.zeros(6), "truncated": np.zeros(6)},
    "crossing": {"truncated": np.zeros(6)},
    "flags": {"dones": np.array([0, 0, 2, 0, 0, 0])},
    "shapes": {"next_obs": np.zeros((6, 2))},
    "lengths": {"rewards": np.zeros(5)},
}


@pytest.mark.parametrize("allow", [(), REPAIRABLE])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_called_trainable_can_be_loaded_and_nothing_else(counted, tmp_path, fault, allow):
    columns = counted([0, 1, 2, 3, 4, 5], truncated=(2, 5)) | FAULTS[fault]
    np.savez(tmp_path / "log.npz", **columns)
    bounds = None if fault == "fractions for choices" else (-1, 1)
    report = inspect_source(tmp_path / "log.npz", action_range=bounds, allow=allow)
    try:
        loaded = load_transition_dataset(tmp_path / "log.npz", action_range=bounds, allow=allow)
    except (TypeError, ValueError):
        assert not report.trainable
    else:
        assert report.trainable
        assert report.transitions == len(loaded)
        assert report.episodes == len(loaded.episode_offsets)


@pytest.mark.parametrize(("returns", "found"), [([6, 5, 3], ["undiscounted_returns"]), ([2.75, 3.5, 3], [])])
def test_undiscounted_returns_to_go_are_remarked_on(counted, returns, found):
    report = inspect(counted([1, 2, 3], dones=(2,)) | {"returns_to_go": np.array(returns, np.float32)})
    assert [finding.kind for finding in report.findings] == found


def test_numbers_too_large_for_32_bits_are_not_reported_as_constant():
    count = np.arange(40)
    obs = np.stack([2.0**60 + count, 1e9 * count, count], 1)
    rows = {"obs": obs, "actions": np.sin(count)[:, None], "rewards": np.cos(count)}
    found = inspect({**rows, "next_obs": obs + 1, "dones": count % 20 == 19, "truncated": count < 0})
    sentences = {each.kind: each.sentence for each in found.findings}
    assert sentences["rounded"].startswith("entry 0 of obs reaches 1.15e+18, where 32-bit floats are 1.37e+11 apart")
    assert "constant_column" not in sentences


@pytest.mark.parametrize(
    ("largest", "rows", "refused"), [(9_999, 5, False), (10_000, 5, True), (10_000, 10_001, False)]
)
def test_integers_such_as_ids_are_no_discrete_actions(largest, rows, refused):
    actions = np.full(rows, 3)
    actions[0] = largest
    with pytest.raises(DatasetError, match="integers up to 10,000 in 5 rows") if refused else nullcontext():
        assert derive_spec(np.zeros((rows, 2)), actions).action_dim == largest + 1


def test_a_number_far_from_all_others_is_reported_with_its_row(counted, tmp_path):
    random = np.random.default_rng(0)
    obs = random.uniform(0, 1, (300, 2)).astype(np.float32)
    obs[:, 1] = 0
    obs[7, 1] = 5  # rare, but the range of the others is 0
    columns = counted([1.0] * 300, dones=(299,)) | {"obs": obs, "next_obs": obs}
    columns["actions"] = random.uniform(-1, 1, (300, 1)).astype(np.float32)
    assert [each for each in inspect(columns, allow=("crossing",)).findings if each.kind == "outliers"] == []
    obs[200, 0], columns["actions"][5] = -9999, 1e6
    texts = [each.text for each in inspect(columns, allow=("crossing",)).findings if each.kind == "outliers"]
    low, high = np.quantile(obs[:, 0].astype(np.float64), [0.01, 0.99])
    between = f"while 98% of its values lie between {low:.4g} and {high:.4g}"
    assert texts[0] == f"entry 0 of obs is -9999 in row 200, {between}"
    assert texts[1].startswith("actions is 1e+06 in row 5, while 98% of its values lie between -0.9")
    obs[200, 0] = -90  # within 100 times the range
    assert "-90" not in str(inspect(columns, allow=("crossing",)).findings)
