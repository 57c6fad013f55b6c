"""TD targets of offline runs: discounts by time, n-step returns, and returns-to-go that a file may not state."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rl_training.algorithms import CATALOGUE
from rl_training.data import TransitionDataset
from rl_training.data.datasets.validation import DatasetError
from rl_training.experiment import datasets
from rl_training.experiment.agent import load_agent
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.ope.policies import PolicyActions, load_dataset_for, with_policy_actions
from rl_training.experiment.ope.remarks import weight_beyond_ends
from rl_training.experiment.run import resume_run, run_training

OPTIONS = {"gamma", "n_step", "discount_time", "time_unit", "cql_alpha_online"}
SMALL = {"batch_size": 4, "hidden_sizes": [4]}
TARGETS = [name for name, learner in CATALOGUE.items()
           if learner.lane == "offline" and not learner.lane_class and name != "bc"]  # fmt: skip
REWARDS = [1.0, 2.0, 4.0, 8.0]


def write(path: Any, **changes: Any) -> str:
    """One episode of four rows, whose steps take 1, 2 and 4 seconds, and which terminates."""
    steps = np.arange(5, dtype=np.float32)[:, None]
    columns = {"obs": steps[:-1], "next_obs": steps[1:], "actions": np.linspace(-0.5, 0.5, 4)[:, None],
               "rewards": np.array(REWARDS), "dones": np.arange(4) == 3,
               "clock": 1_700_000_000 + np.array([0.0, 1, 3, 7])}  # fmt: skip
    np.savez(path, **{**columns, **changes})
    return str(path)


def config_of(folder: Any, algo: str = "iql", *, data: Any = None, **changes: Any) -> Any:
    options: dict[str, Any] = dict(SMALL)
    for name in OPTIONS & changes.keys():
        options[name] = changes.pop(name)
    file = write(folder / "log.npz", **(data or {}))
    values = {"dataset": file, "total_timesteps": 2, "eval_interval": 0, "output_dir": str(folder / "run")}
    return parse_config({"algo": algo, "algo_kwargs": options, **values, **changes})


def training_data(config: Any, warn: Any = print) -> TransitionDataset:
    state, _ = assemble([config], choose(config), 2, warn=warn)
    assert isinstance(state.lane.source, TransitionDataset)
    return state.lane.source


def test_rows_are_discounted_by_their_time_steps(tmp_path):
    data = training_data(config_of(tmp_path, gamma=0.25, discount_time="clock", time_unit=2))
    assert data.columns["discounts"].tolist() == [0.5, 0.25, 0.0625, 0.25]  # the last row: the median step of 2


def test_the_time_column_may_be_named_among_the_columns(tmp_path):
    named: dict[str, Any] = {"dataset_columns": {"time": "clock"}, "discount_time": "time", "time_unit": 2}
    assert training_data(config_of(tmp_path, gamma=0.25, **named)).columns["discounts"][0] == 0.5


def test_a_column_of_durations_serves_as_well(tmp_path):
    data = {"dt": np.array([2.0, 4, 2, 2])}
    named: dict[str, Any] = {"dataset_columns": {"durations": "dt"}, "discount_time": "durations", "time_unit": 2}
    assert training_data(config_of(tmp_path, gamma=0.5, data=data, **named)).columns["discounts"].tolist() == [
        0.5, 0.25, 0.5, 0.5,
    ]  # fmt: skip


def test_rewards_become_n_step_returns_and_the_data_are_checked_before(tmp_path):
    warnings: list[str] = []
    config = config_of(tmp_path, gamma=0.5, n_step=2)
    assert training_data(config).columns["rewards"].tolist() == [2, 4, 8, 8]
    run_training(config, warn=warnings.append)
    assert not [each for each in warnings if "next_obs" in each]


@pytest.mark.parametrize("algo", ["bc", *TARGETS])
def test_the_algorithms_with_targets_have_the_options(algo):
    options = CATALOGUE[algo].config_type.model_fields.keys()
    assert ("n_step" in options, "discount_time" in options) == (algo in TARGETS, True)


@pytest.mark.parametrize("discrete", [False, True], ids=["box", "discrete"])
@pytest.mark.parametrize("algo", TARGETS)
def test_every_target_follows_the_discounts_of_the_rows(algo, discrete, tmp_path):
    data = {"actions": np.array([0, 1, 1, 0])} if discrete else {}
    config = config_of(tmp_path, algo, data=data, n_step=2, discount_time="clock", time_unit=1)
    try:
        state, (parts,) = assemble([config], choose(config), 2, warn=lambda text: None)
    except TypeError:
        pytest.skip("does not take Discrete actions")
    batch = {**state.lane.source.sample(8), "discounts": torch.zeros(8)}
    found = parts.learner(batch, parts.learner.phases(0)[0]).metrics["target_q_mean"]
    torch.testing.assert_close(found, batch["rewards"].mean())
    state.updater.run(state.lane.source, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"discount_time": "when", "time_unit": 1}, "has no column 'when' to use as time"),
        ({"discount_time": "clock"}, "needs time_unit.*the median time step of the data is 2: set time_unit=2"),
        ({"discount_time": "clock", "time_unit": 1, "data": {"clock": np.array([0.0, 1, 1, 2])}}, "it is 0 in row 1"),
        ({"discount_time": "clock", "time_unit": 1, "data": {"clock": np.array([0.0, 2, 1, 3])}}, "it is -1 in row 1"),
        ({"discount_time": "durations", "time_unit": 1}, "name its column with --columns time=NAME"),
        ({"n_step": 2, "dataset_stride": 2}, "n_step needs every row of an episode, so dataset_stride must be 1"),
        ({"n_step": 2, "online_steps": 5, "env_id": "Pendulum-v1"}, "n_step is for training on a dataset alone"),
        (
            {"dataset_columns": {"discounts": "clock"}, "online_steps": 5, "env_id": "Pendulum-v1"},
            r"dataset_columns\.discounts is for training on a dataset alone, because online",
        ),
        (
            {"algo": "mopo", "dataset_columns": {"discounts": "clock"}},
            r"dataset_columns\.discounts has no effect with mopo, because model transitions have no such column",
        ),
        ({"algo": "cal_ql", "cql_alpha_online": 0.5}, "cql_alpha_online is for the online phase; add online_steps"),
        ({"algo": "cql", "cql_alpha_online": 0.5}, "cql_alpha_online is for the online phase; add online_steps"),
    ],
)
def test_data_that_do_not_fit_the_options_are_refused(changes, message, tmp_path):
    with pytest.raises((ConfigError, ValueError), match=message):
        training_data(config_of(tmp_path, **changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_unit": 60}, "time_unit needs discount_time, the time column of the file"),
        ({"discount_time": "clock", "time_unit": 0}, "time_unit"),
        ({"n_step": 0}, "n_step"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        config_of(tmp_path, **options)


def test_a_run_with_uneven_steps_resumes_to_the_same_weights(tmp_path):
    timed: Any = {"discount_time": "clock", "time_unit": 1}
    config = config_of(tmp_path, n_step=2, total_timesteps=6, checkpoint_interval=3, **timed)
    run_training(config, warn=lambda text: None)
    last = tmp_path / "run" / "checkpoints" / "step_000000006" / "learner.safetensors"
    whole = last.read_bytes()
    shutil.rmtree(last.parent)
    (tmp_path / "run" / "result.json").unlink()
    resume_run(tmp_path / "run")
    assert last.read_bytes() == whole


def test_a_run_of_a_version_without_the_options_resumes(tmp_path):
    run_training(config_of(tmp_path), warn=lambda text: None)
    file = tmp_path / "run" / "config.yaml"
    stored = yaml.safe_load(file.read_text())
    for name in ("n_step", "discount_time", "time_unit"):
        del stored["algo_kwargs"][name]
    file.write_text(yaml.safe_dump(stored))
    assert resume_run(tmp_path / "run", steps=4).steps == 4


def test_a_run_that_an_older_version_started_with_an_unused_weight_resumes(tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(datasets, "check_phases", lambda config: None)
        run_training(config_of(tmp_path, "cql", cql_alpha_online=0.5), warn=lambda text: None)
    assert resume_run(tmp_path / "run", steps=4).steps == 4


# Returns-to-go of the rewards 1, 2, 4, 8 with gamma 0.5 are 4, 6, 8, 8; undiscounted they are 15, 14, 12, 8.
UNDISCOUNTED = np.array([15.0, 14, 12, 8])
DISCOUNTED = np.array([4.0, 6, 8, 8])


def test_undiscounted_returns_to_go_of_a_file_are_refused(tmp_path):
    message = (
        r"returns_to_go is undiscounted: with gamma=0\.5, 3 of 4 rows differ, and row 0 holds 15 instead of 4; "
        r"leave the column out with --columns returns_to_go="
    )
    with pytest.raises(DatasetError, match=message):
        training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data={"returns_to_go": UNDISCOUNTED}))


def test_other_returns_to_go_of_a_file_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"returns_to_go does not fit the rewards: with gamma=0\.5, 1 of 4 rows"):
        training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data={"returns_to_go": np.array([4.0, 6, 9, 8])}))


def test_a_column_that_is_left_out_is_derived(tmp_path):
    named = {"dataset_columns": {"returns_to_go": ""}}
    data = training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data={"returns_to_go": UNDISCOUNTED}, **named))
    assert data.columns["returns_to_go"].tolist() == DISCOUNTED.tolist()


def test_right_returns_to_go_of_a_file_are_used(tmp_path):
    stored = {"returns_to_go": DISCOUNTED * (1 + 1e-5)}
    data = training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data=stored))
    assert data.columns["returns_to_go"].tolist() == pytest.approx((DISCOUNTED * (1 + 1e-5)).tolist(), rel=1e-7)


def test_returns_to_go_that_end_where_an_episode_was_cut_are_used(tmp_path):
    cut = {"dones": np.zeros(4), "truncated": np.arange(4) == 3, "returns_to_go": DISCOUNTED}
    data = training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data=cut))
    assert data.columns["returns_to_go"].tolist() == DISCOUNTED.tolist()


def test_algorithms_without_returns_to_go_ignore_the_column(tmp_path):
    data = training_data(config_of(tmp_path, "iql", gamma=0.5, data={"returns_to_go": UNDISCOUNTED}))
    assert data.columns["returns_to_go"].tolist() == UNDISCOUNTED.tolist()


def test_returns_to_go_of_cut_episodes_are_announced(tmp_path):
    warnings: list[str] = []
    cut = {"dones": np.zeros(4), "truncated": np.arange(4) == 3}
    training_data(config_of(tmp_path, "cal_ql", gamma=0.5, data=cut), warnings.append)
    assert warnings == [
        "1 of 1 episodes have no terminal end: their returns-to-go continue after it with the rewards of their episode"
    ]


def test_a_run_that_started_with_undiscounted_returns_to_go_resumes_with_a_warning(tmp_path, monkeypatch):
    config = config_of(tmp_path, "cal_ql", gamma=0.5, data={"returns_to_go": UNDISCOUNTED})
    with monkeypatch.context() as earlier:
        earlier.setattr(TransitionDataset, "require_returns_to_go", lambda self, gamma: None)
        run_training(config, warn=lambda text: None)
    warnings: list[str] = []
    assert resume_run(tmp_path / "run", steps=4, warn=warnings.append).steps == 4
    assert any("the run continues with the column that it started with" in each for each in warnings)


def test_off_policy_evaluation_discounts_by_the_time_of_the_run(tmp_path):
    run_training(config_of(tmp_path, gamma=0.25, discount_time="clock", time_unit=2), warn=lambda text: None)
    agent = load_agent(tmp_path / "run")
    data = load_dataset_for(agent, str(tmp_path / "log.npz"))
    rows = with_policy_actions(data, [PolicyActions(agent.learner, None, 0)], 0.25)
    assert rows.columns["discounts"].tolist() == [0.5, 0.25, 0.0625, 0.25]
    assert rows.columns["returns_to_go"].tolist() == [2.5625, 3.125, 4.5, 8]  # 8 | 4 + 8 / 16 | 2 + 4.5 / 4 | ...


@pytest.mark.parametrize(("discounts", "weight"), [({}, 0.0625), ({"discounts": torch.tensor([0.5, 0.5, 1, 1])}, 0.25)])
def test_the_weight_beyond_the_ends_follows_the_discounts(discounts, weight):
    zeros = torch.zeros(4)
    columns = {"obs": zeros[:, None], "next_obs": zeros[:, None], "actions": zeros[:, None], "rewards": zeros,
               "dones": zeros, "truncated": zeros, **discounts}  # fmt: skip
    assert weight_beyond_ends(TransitionDataset(columns), 0.5) == weight
