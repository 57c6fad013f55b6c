"""Columns that a learner declares: a run that cannot supply one is refused before it starts."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from rl_training.algorithms import CATALOGUE, BCAlgorithm, Learner, SACAlgorithm
from rl_training.algorithms.core.learner import Column
from rl_training.experiment.config.train_config import ConfigError, parse_config
from rl_training.experiment.run import run_training
from rl_training.types import Batch, Loss

DATA = {"env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 100}, "total_timesteps": 4, "eval_interval": 0}
SMALL = {"batch_size": 8, "hidden_sizes": [8]}


class Declared(BCAlgorithm):
    """Behaviour cloning that also reads the action after each transition."""

    name = "declared"
    needs: ClassVar[Any] = (Column("next_actions", like="actions"),)

    def prepare(self, batch: Batch) -> Batch:
        return {**super().prepare(batch), "next_actions": batch["actions"].roll(-1, 0)}

    def loss(self, batch: Batch) -> Loss:
        return super().loss(batch).plus({}, {"next_action_mean": batch["next_actions"].mean()})


class Undeclared(Declared):
    name = "undeclared"
    needs: ClassVar[Any] = ()


class Unsupplied(Declared):
    name = "unsupplied"
    needs: ClassVar[Any] = (Column("costs", like="rewards"),)


class OtherType(Declared):
    name = "other_type"
    needs: ClassVar[Any] = (Column("next_actions", shape=(2,), dtype=torch.int64),)


class Valued(Declared):
    """Prepares a column by the policy, whose gradients it does not turn off."""

    name = "valued"

    def prepare(self, batch: Batch) -> Batch:
        return {**super().prepare(batch), "next_actions": self.model.actor(self.normalizer(batch["next_obs"])).mode()}

    def loss(self, batch: Batch) -> Loss:
        return super().loss(batch).plus({"extra_loss": batch["next_actions"].mean()})


class Online(SACAlgorithm):
    name = "online"
    needs: ClassVar[Any] = (Column("returns_to_go", online="episode end"),)


def train(learner: type[Learner], monkeypatch: pytest.MonkeyPatch, folder: Any, **changes: Any) -> Any:
    monkeypatch.setitem(CATALOGUE, learner.name, learner)
    options = {"algo": learner.name, "algo_kwargs": SMALL, "output_dir": str(folder / "run")}
    return run_training(parse_config({**DATA, **options, **changes}))


def test_a_dataset_is_prepared_without_gradients(monkeypatch, tmp_path):
    train(Valued, monkeypatch, tmp_path)  # a column with gradients would be differentiated again in every update


def test_a_prepared_column_reaches_the_loss_of_an_offline_run(monkeypatch, tmp_path):
    assert "next_action_mean" in train(Declared, monkeypatch, tmp_path).metrics


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (Declared, "declared needs the column 'next_actions', which environment steps do not supply; set online_steps"),
        (Undeclared, "undeclared prepares the column 'next_actions' .* do not supply; set online_steps to 0"),
    ],
)
def test_fine_tuning_without_a_needed_column_is_refused_before_it_starts(learner, message, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(learner, monkeypatch, tmp_path, online_steps=20)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (Unsupplied, "unsupplied needs the column 'costs', which the dataset does not have; it has obs, "),
        (OtherType, r"'next_actions' with rows of shape \(2,\) and torch.int64, got \(1,\) and torch.float32"),
    ],
)
def test_a_dataset_without_a_needed_column_is_refused(learner, message, monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(learner, monkeypatch, tmp_path)


def test_an_online_algorithm_cannot_need_a_column_that_its_lane_does_not_supply(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="online needs the column 'returns_to_go', which environment steps"):
        train(Online, monkeypatch, tmp_path, dataset=None)
