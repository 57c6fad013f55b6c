"""The dataset that a config describes."""

from __future__ import annotations

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
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.datasets import load_dataset
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.verify import verify_run


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


def logged(path: Path, **columns: Any) -> str:
    rows = {"episode": [0, 0, 0], "obs": [1.0, 2.0, 3.0], "reward": [1.0, 2.0, 3.0],
            "done": [False, False, True], **columns}  # fmt: skip
    pq.write_table(pa.table(rows), path)
    return str(path)


@pytest.mark.parametrize(
    ("algo", "columns", "reading"),
    [
        ("bc", {"action": [0, 1, 0], "when": ["2026-01-01", "2026-01-03", "2026-01-02"]}, {"text_times": False}),
        ("td3_bc", {"action_0": [1, 2, 4], "action_1": [0, 3, 1]}, {"choices": False}),  # takes Box actions only
    ],
)
def test_a_run_of_a_version_that_read_the_file_differently_is_refused(tmp_path, monkeypatch, algo, columns, reading):
    values = {"algo": algo, "dataset": logged(tmp_path / "log.parquet", **columns), "output_dir": str(tmp_path / "run"),
              "total_timesteps": 4, "algo_kwargs": {"hidden_sizes": [4], "batch_size": 2}}  # fmt: skip
    with monkeypatch.context() as other:
        load = partial(load_transition_dataset, **reading)
        other.setattr("rl_training.experiment.datasets.load_transition_dataset", load)
        other.setattr("rl_training.experiment.training_run.versions", lambda: {"rl-training": "0.0.9"})
        run_training(parse_config(values))
    with pytest.raises(
        ConfigError, match=r"differ from those of .*, or the version .* wrote it \(0\.0\.9\) reads the file"
    ):
        resume_run(tmp_path / "run", steps=8)


def test_a_run_on_other_data_is_not_verified(tmp_path):
    file = write(tmp_path / "a.npz", [1.0, 2.0])
    values = {"algo": "bc", "dataset": file, "output_dir": str(tmp_path / "run"), "total_timesteps": 4,
              "log_interval": 1, "algo_kwargs": {"hidden_sizes": [4], "batch_size": 2}}  # fmt: skip
    run_training(parse_config(values))
    assert verify_run(tmp_path / "run").identical
    write(tmp_path / "a.npz", [1.0, 2.5])
    with pytest.raises(ConfigError, match=r"the dataset or its rewards differ from those of .*run, or the version"):
        verify_run(tmp_path / "run")


def test_a_run_without_a_checkpoint_records_the_data_that_it_reads(tmp_path):
    values = {"algo": "bc", "dataset": write(tmp_path / "a.npz", [1.0, 2.0]), "output_dir": str(tmp_path / "run"),
              "total_timesteps": 4, "algo_kwargs": {"hidden_sizes": [4], "batch_size": 2}}  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.begin(parse_config(values))
    directory.write("run.json", {"dataset": "the fingerprint of other data"})
    run_training(parse_config(values))
    assert (directory.read("run.json") or {})["dataset"] == load(**values).fingerprint()


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
