"""The dataset that a config describes."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_training import BC, CQL
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.datasets.validation import DatasetError
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.datasets import load_dataset, load_run_dataset
from rl_training.experiment.run import run_training
from rl_training.experiment.verify import compare_runs, verify_run


def write(path, rewards: list[float], **changes: Any) -> str:
    """One episode whose observations count its steps, and which terminates."""
    steps = np.arange(len(rewards) + 1, dtype=np.float32)[:, None]
    columns = {"obs": steps[:-1], "next_obs": steps[1:], "actions": np.zeros((len(rewards), 1)), "rewards": rewards,
               "dones": steps[:-1, 0] == len(rewards) - 1}  # fmt: skip
    np.savez(path, **{**columns, **changes})
    return str(path)


def load(**values: Any) -> TransitionDataset:
    return load_dataset(parse_config({"algo": "bc", **values}))[0]


def test_several_sources_are_drawn_from_by_their_weights(tmp_path):
    few, many = write(tmp_path / "few.npz", [1]), write(tmp_path / "many.npz", [0] * 99)
    plain = load(dataset=[few, many])
    weighted = load(dataset=[{"source": few, "weight": 3}, {"source": many, "weight": 1}])
    assert (len(plain), len(weighted)) == (100, 100)
    assert plain.sample(10_000)["rewards"].mean().item() == pytest.approx(0.01, abs=0.01)
    assert weighted.sample(10_000)["rewards"].mean().item() == pytest.approx(0.75, abs=0.03)


def test_a_file_and_a_recipe_are_mixed(tmp_path):
    obs = np.zeros((5, 3))
    file = write(tmp_path / "a.npz", [1] * 5, obs=obs, next_obs=obs)
    dataset = load(env_id="Pendulum-v1", dataset=[file, {"kind": "random", "rows": 8}])
    assert len(dataset) == 13


def test_columns_range_and_faults_are_passed_to_the_reader(tmp_path):
    file = write(tmp_path / "a.npz", [1, np.nan, 3], torque=[[1.0], [1.0], [8.0]])
    dataset = load(
        dataset=file, dataset_columns={"actions": "torque"}, action_range=[-4, 4], allow=["nan", "out_of_range"]
    )
    assert dataset.columns["actions"].tolist() == [[0.25], [1.0]]
    assert dataset.spec.action_high == (4.0,)


def test_a_run_fits_the_observation_statistics_to_its_dataset(tmp_path):
    file = write(tmp_path / "a.npz", [0.0, 1.0, 2.0])  # observations 0, 1 and 2
    options: dict[str, Any] = {"dataset": file, "normalize_obs": True, "hidden_sizes": [4], "total_timesteps": 1}
    for algorithm in (BC, CQL):
        agent = algorithm(**options, output_dir=str(tmp_path / algorithm.__name__), eval_interval=0).learn()
        normalizer = agent.agent.learner.normalizer
        assert normalizer.get_buffer("mean").tolist() == [1.0]
        assert normalizer.get_buffer("std").tolist() == pytest.approx([(2 / 3) ** 0.5 + 1e-3])


# Returns 3 and 13 come to lie 1000 apart, so rewards are times 100; then times 0.01, less 1, and at most 4.
def test_rewards_are_normalised_scaled_shifted_and_clipped_in_this_order(tmp_path):
    sources = [write(tmp_path / "a.npz", [1, 2]), write(tmp_path / "b.npz", [4, 9])]
    rewards = {"normalize": "return_range", "scale": 0.01, "shift": -1, "clip": [-5, 4]}
    assert load(dataset=sources, rewards=rewards).columns["rewards"].tolist() == pytest.approx([0, 1, 3, 4])


def test_a_run_from_several_sources_is_rebuilt_from_its_config(tmp_path):
    files = [write(tmp_path / f"{name}.npz", [1.0, 2.0] * 8) for name in "ab"]
    values = {
        "algo": "bc", "total_timesteps": 4, "output_dir": str(tmp_path / "run"), "rewards": {"shift": -1},
        "dataset": [{"source": file, "weight": 1} for file in files],
        "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8},
    }  # fmt: skip
    run_training(parse_config(values))
    again = run_training(parse_config({**values, "total_timesteps": 4}))
    assert (again.status, again.steps) == ("finished", 4)


def test_a_run_of_an_earlier_version_resumes_without_the_text_timestamps_of_its_parquet_file(tmp_path):
    rows = {"episode": [0, 0, 0], "obs": [1.0, 2.0, 3.0], "action": [0, 1, 0], "reward": [1.0, 2.0, 3.0],
            "done": [False, False, True], "when": ["2026-01-01", "2026-01-03", "2026-01-02"]}  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    earlier = load_transition_dataset(tmp_path / "log.parquet", text_times=False)
    config = parse_config({"algo": "bc", "dataset": str(tmp_path / "log.parquet")})
    start = {"spec": earlier.spec.to_json(), "dataset": earlier.fingerprint()}
    resumed, _, fingerprint = load_run_dataset(config, start)
    assert resumed is not None
    assert fingerprint == resumed.fingerprint() == earlier.fingerprint()
    started, _, _ = load_run_dataset(config, None)
    assert started is not None
    assert started.columns["rewards"].tolist() == [1, 3]  # in the order of time, in which the terminal row is second


def logged(path: Path, **columns: Any) -> str:
    rows = {"episode": [0, 0, 0], "obs": [1.0, 2.0, 3.0], "reward": [1.0, 2.0, 3.0],
            "done": [False, False, True], **columns}  # fmt: skip
    pq.write_table(pa.table(rows), path)
    return str(path)


DATES = ["31/01/2026", "01/02/2026", "02/02/2026"]


@pytest.mark.parametrize(
    "times",
    [
        {"date": DATES, "seen": ["2026-01-01", "2026-01-02", "2026-01-03"]},  # had been ordered by `seen`
        {"seen": ["2026-01-01", "2026-01-02", "2026-01-03"], "date": [*DATES[:2], ""]},  # missing dates are refused now
    ],
)
def test_a_run_that_began_before_dates_were_read_resumes_with_the_same_data(tmp_path, times):
    config = parse_config({"algo": "bc", "dataset": logged(tmp_path / "log.parquet", action=[0, 1, 0], **times)})
    earlier, _ = load_dataset(config, text_times="iso")
    assert earlier.time_column == "seen"
    start = {"spec": earlier.spec.to_json(), "dataset": earlier.fingerprint()}
    assert load_run_dataset(config, start)[2] == earlier.fingerprint()
    with pytest.raises(DatasetError) if "" in times["date"] else nullcontext():
        assert load_run_dataset(config, None)[2] != earlier.fingerprint()


def test_a_run_that_dropped_terminal_rows_without_an_action_resumes_with_the_same_data(tmp_path):
    file = logged(tmp_path / "log.parquet", action=[0, 1, None])
    config = parse_config({"algo": "bc", "dataset": file, "allow": ["nan"]})
    earlier, _ = load_dataset(config, final_rows=False)
    start = {"spec": earlier.spec.to_json(), "dataset": earlier.fingerprint()}
    assert load_run_dataset(config, start)[2] == earlier.fingerprint()
    assert load_run_dataset(config, None)[2] != earlier.fingerprint()


@pytest.mark.parametrize("reading", [{}, {"text_times": "iso"}])
def test_a_run_that_ignored_a_column_of_decimals_resumes_with_the_same_data(tmp_path, reading):
    cost = [Decimal("0.5"), Decimal("0.25"), Decimal("0.1")]
    config = parse_config({"algo": "bc", "dataset": logged(tmp_path / "log.parquet", action=[0, 1, 0], cost=cost)})
    now = load_dataset(config, **reading)[0]
    assert now.columns["cost"].tolist() == pytest.approx([0.5, 0.25, 0.1])
    earlier, _ = load_dataset(config, decimals=False, **reading)
    assert "cost" not in earlier.columns
    start = {"spec": earlier.spec.to_json(), "dataset": earlier.fingerprint()}
    assert load_run_dataset(config, start)[2] == earlier.fingerprint()
    assert load_run_dataset(config, None)[2] != earlier.fingerprint()


@pytest.mark.parametrize("obs", ["obs,action", "*"])
def test_a_run_that_used_a_column_twice_resumes_with_the_same_data(tmp_path, obs):
    file = logged(tmp_path / "log.parquet", action=[0, 1, 0])
    config = parse_config({"algo": "bc", "dataset": file, "dataset_columns": {"obs": obs, "actions": "action"}})
    earlier, _ = load_dataset(config, one_use=False)
    start = {"spec": earlier.spec.to_json(), "dataset": earlier.fingerprint()}
    assert load_run_dataset(config, start)[2] == earlier.fingerprint()
    with nullcontext() if obs == "*" else pytest.raises(ValueError, match="'action' is used for obs and for actions"):
        assert load_run_dataset(config, None)[2] != earlier.fingerprint()


@pytest.mark.parametrize(
    ("columns", "reading"),
    [
        ({"action": [0, 1, 0], "date": ["02/02/2026", "31/01/2026", "01/02/2026"]}, {"text_times": "iso"}),
        ({"action_0": [1, 2, 4], "action_1": [0, 3, 1]}, {"choices": False}),
        ({"action_0": [1, 2, 4], "action_1": [0, 3, 1], "when": ["2026-01-01", "2026-01-03", "2026-01-02"]},
         {"text_times": False, "choices": False}),
    ],
)  # fmt: skip
def test_a_run_that_began_when_files_were_read_in_another_way_is_verified(tmp_path, monkeypatch, columns, reading):
    file = logged(tmp_path / "log.parquet", **columns)
    values = {"algo": "bc", "dataset": file, "output_dir": str(tmp_path / "run"), "total_timesteps": 4,
              "log_interval": 1, "algo_kwargs": {"hidden_sizes": [4], "batch_size": 2}}  # fmt: skip
    with monkeypatch.context() as earlier:
        load = partial(load_transition_dataset, **reading)
        earlier.setattr("rl_training.experiment.datasets.load_transition_dataset", load)
        run_training(parse_config(values))
    assert verify_run(tmp_path / "run").identical
    run_training(parse_config({**values, "output_dir": str(tmp_path / "now")}))
    assert compare_runs(tmp_path / "run", tmp_path / "now")  # another order of rows, or other actions


def test_other_data_are_not_taken_for_those_of_an_earlier_version(tmp_path):
    config = parse_config({"algo": "bc", "dataset": logged(tmp_path / "log.parquet", action=[0, 1, 0], date=DATES)})
    dataset, _, fingerprint = load_run_dataset(config, None)
    assert dataset is not None
    start = {"spec": dataset.spec.to_json(), "dataset": "the fingerprint of other data"}
    assert load_run_dataset(config, start)[2] == fingerprint


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (pd.DataFrame({"obs": [1.0]}), "a DataFrame; write it to a file such as data.parquet, and give the path"),
        (
            TransitionDataset.from_dict(
                {name: np.ones(1) for name in ("obs", "actions", "rewards", "next_obs", "dones")}
            ),
            "a TransitionDataset; write it to a file with save_transition_dataset, and give the path",
        ),
    ],
)
def test_data_in_memory_must_be_written_to_a_file(data, sentence):
    with pytest.raises(ConfigError, match=f"dataset: must be a file, a recipe or a list of them, got {sentence}"):
        BC(dataset=data, total_timesteps=1)


def test_columns_of_a_config_may_be_lists(tmp_path):
    file = logged(tmp_path / "log.parquet", action=[0, 1, 0], load=[1.0, 2.0, 3.0])
    config = parse_config({"algo": "bc", "dataset": file, "dataset_columns": {"obs": ["load", "obs"]}})
    assert config.dataset_columns == {"obs": "load,obs"}
    assert load_dataset(config)[0].spec.obs_names == ("load", "obs")
