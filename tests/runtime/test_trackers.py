"""Trackers log the rows of a run, continue on resume and never disturb a training."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import PPO
from rl_training.runtime.callbacks.trackers import GuardedTracker, Subject, new_trackers
from rl_training.runtime.callbacks.trackers import guarded as guards
from rl_training.runtime.callbacks.trackers.subject import numbers_of

OPTIONS: dict[str, Any] = {
    "total_timesteps": 128, "num_steps": 32, "batch_size": 32, "hidden_sizes": [4], "eval_interval": 64,
    "log_interval": 32, "eval_episodes": 1, "epochs": 1,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("tensorboard")


@pytest.fixture
def local(monkeypatch, tmp_path) -> Path:
    """Runs offline in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": "file:stored"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def trained(**options: Any) -> PPO:
    return PPO("CartPole-v1", output_dir="run", **{**OPTIONS, **options}).learn()


class Recorder:
    def __init__(self, subject: Subject) -> None:
        self.subject, self.ended = subject, ""
        self.rows: list[dict[str, Any]] = []
        RECORDERS.append(self)
        random.random(), np.random.random(), torch.rand(1)
        subject.store({"id": subject.stored().get("id", 0) + 1})

    def write(self, row: dict[str, Any]) -> None:
        torch.rand(1)
        self.rows.append(row)

    def finish(self, status: str) -> None:
        self.ended = status


RECORDERS: list[Any] = []


@pytest.fixture
def recorder(monkeypatch) -> list[Any]:
    """Takes the place of wandb."""
    RECORDERS.clear()
    monkeypatch.setitem(guards.OPENERS, "wandb", Recorder)
    monkeypatch.setattr(guards, "find_spec", lambda name: True)
    return RECORDERS


def weights(agent: Any) -> list[Any]:
    return [each.tolist() for each in agent.agent.learner.parameters()]


def test_a_tracker_gets_every_row_and_the_end_and_changes_no_weight(local, recorder):
    with_tracker = trained(log=["wandb"])
    (found,) = recorder
    steps = [json.loads(line)["step"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in found.rows] == steps
    assert found.ended == "finished"
    assert found.subject.config["algo_kwargs"]["hidden_sizes"] == [4]
    assert found.subject.group == "ppo-CartPole-v1"
    assert not Path("run/tensorboard").exists()
    assert weights(with_tracker) == weights(PPO("CartPole-v1", output_dir="other", **OPTIONS, log=[]).learn())


def test_a_resume_finds_what_the_tracker_stored(local, recorder):
    trained(log=["wandb"])
    from rl_training import resume_training

    resume_training("run", total_timesteps=192)
    assert [each.subject.stored() for each in recorder] == [{"id": 2}, {"id": 2}]
    assert recorder[1].rows[0]["step"] > 128


def train_population() -> None:
    from rl_training.experiment.config.train_config import parse_config
    from rl_training.experiment.run import run_population

    run_population([
        parse_config({"algo": "dqn", "env_id": "CartPole-v1", "seed": seed, "total_timesteps": 60, "log": ["wandb"],
                      "output_dir": f"run-{seed}", "log_interval": 30, "eval_interval": 0,
                      "algo_kwargs": {"hidden_sizes": [4], "learning_starts": 20, "batch_size": 8}})
        for seed in (0, 1)
    ])  # fmt: skip


def test_every_member_of_a_population_is_logged_alone(local, recorder):
    train_population()
    assert [each.subject.path.name for each in recorder] == ["run-0", "run-1"]
    assert all(each.ended == "finished" for each in recorder)


def test_an_error_warns_once_and_training_goes_on():
    class Broken:
        def write(self, row: dict[str, Any]) -> None:
            raise RuntimeError("no network")

        def finish(self, status: str) -> None:
            raise RuntimeError("no network")

    warnings: list[str] = []
    tracker = GuardedTracker("wandb", Broken, warnings.append)
    for _ in range(3):
        tracker.write({"step": 1})
    tracker.finish("finished")
    assert warnings == ["wandb failed and logs nothing more; training continues: RuntimeError: no network"]


def test_a_missing_package_is_named_before_the_run_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(guards, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'log: mlflow is not installed: pip install "rl-training\[mlflow\]"'):
        PPO("CartPole-v1", output_dir=str(tmp_path / "run"), **OPTIONS, log=["mlflow"]).learn()
    assert not (tmp_path / "run").exists()


def test_without_its_package_tensorboard_is_left_out(monkeypatch):
    monkeypatch.setattr(guards, "find_spec", lambda name: None)
    assert new_trackers(["tensorboard"], lambda name: pytest.fail("not asked"), print) == []


def test_tensorboard_has_every_number_at_the_end_of_a_run_and_of_its_resume(local):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from rl_training import resume_training

    def steps() -> list[int]:
        events = accumulator.EventAccumulator("run/tensorboard").Reload()
        return [each.step for each in events.Scalars("value_loss")]

    trained()
    assert steps() == [32, 64, 96, 128]
    resume_training("run", total_timesteps=192)
    assert steps() == [32, 64, 96, 128, 160, 192]


def test_the_numbers_of_a_row_include_its_evaluation():
    row = {"step": 3, "time": 1.0, "loss": 0.5, "none": None, "evaluation": {"return_mean": 7.0, "returns": [7.0]}}
    assert numbers_of(row) == {"loss": 0.5, "return_mean": 7.0}


def test_mlflow_logs_to_a_folder_and_a_resume_continues_the_same_run(local):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    from rl_training import resume_training

    trained(log=["mlflow"])
    resume_training("run", total_timesteps=192)
    client = MlflowClient(tracking_uri="file:stored")
    experiments = [each.experiment_id for each in client.search_experiments() if each.name == "rl_training"]
    (run,) = client.search_runs(experiments)
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["algo_kwargs.hidden_sizes"] == "[4]"
    steps = [each.step for each in client.get_metric_history(run.info.run_id, "return_mean")]
    assert (steps[0], steps[-1]) == (64, 192)
    assert run.data.metrics["value_loss"] > 0


def test_wandb_logs_offline_and_a_resume_continues_the_same_run(local):
    wandb = pytest.importorskip("wandb")
    from rl_training import resume_training

    trained(log=["tensorboard", "wandb"])
    resume_training("run", total_timesteps=192)
    folders = sorted(Path("run/wandb").glob("offline-run-*"))
    ids = {folder.name.rsplit("-", 1)[1] for folder in folders}
    assert (len(folders), ids) == (2, {json.loads(Path("run/trackers.json").read_text())["wandb"]["id"]})
    assert all(list(folder.glob("*.wandb")) for folder in folders)
    assert wandb.run is None


def test_wandb_ends_every_member_of_a_population(local, capsys):
    pytest.importorskip("wandb")
    train_population()
    assert "failed" not in capsys.readouterr().err
    for seed in (0, 1):
        assert b"finished" in b"".join(path.read_bytes() for path in Path(f"run-{seed}/wandb").rglob("*.wandb"))
