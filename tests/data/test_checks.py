"""inspect_columns reports every fault of a file's columns; check_dataset warns about data that can be trained on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset, check_dataset, load_transition_dataset
from rl_training.data.datasets.checks import inspect_source
from rl_training.data.datasets.report import Distribution
from rl_training.data.datasets.validation import REPAIRABLE

sys.path.insert(0, str(Path(__file__).parent))
from column_checks import TORQUE, inspect, kinds  # type: ignore[import-not-found]

sys.path.pop(0)


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


@pytest.mark.parametrize(("limits", "expected"), [((5,), True), ((5, 8), False), ((), False)])
def test_terminals_that_include_all_time_limits_are_reported(tmp_path, limits, expected):
    obs = np.arange(9, dtype=np.float32)
    done, truncated = np.isin(obs, (2, 5)), np.isin(obs, limits)
    np.savez(tmp_path / "log.npz", obs=obs, actions=obs, rewards=obs, next_obs=obs + 1, done=done, truncated=truncated)
    found = {finding.kind: finding.text for finding in inspect_source(str(tmp_path / "log.npz")).findings}
    assert ("truncated_terminals" in found) == expected
    if expected:
        assert found["truncated_terminals"] == (
            "all rows that 'truncated' marks are also marked in 'done', so they are read as terminal"
        )


def test_terminals_that_include_the_time_limits_of_one_file_alone_are_not_reported(tmp_path):
    obs = np.arange(6, dtype=np.float32)
    columns = {"obs": obs, "actions": obs, "rewards": obs, "next_obs": obs + 1}
    for name, ends, limits in (("a", (2, 5), (2,)), ("b", (2,), (5,))):
        done, truncated = np.isin(obs, ends), np.isin(obs, limits)
        np.savez(tmp_path / f"{name}.npz", **columns, done=done, truncated=truncated)  # type: ignore[arg-type]
    found = {name: inspect_source(str(tmp_path / name)).findings for name in ("a.npz", "*.npz")}
    kinds = {name: [finding.kind for finding in findings] for name, findings in found.items()}
    assert "truncated_terminals" in kinds["a.npz"]
    assert "truncated_terminals" not in kinds["*.npz"]


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
