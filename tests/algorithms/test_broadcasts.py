"""A loss of the user's own that broadcasts [rows, 1] with [rows] is named with its line, once."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from rl_training.algorithms import AlgorithmConfig, DQNAlgorithm, Learner, ReplayConfig, Updater
from rl_training.models import Layers
from rl_training.types import EnvSpec, Loss

SPEC, ROWS = EnvSpec((4,), "discrete", 2), 6
BATCH = {
    "obs": torch.zeros(ROWS, 4), "next_obs": torch.zeros(ROWS, 4), "actions": torch.zeros(ROWS, dtype=torch.long),
    "rewards": torch.arange(ROWS).float(), "dones": torch.zeros(ROWS),
}  # fmt: skip


class Model(nn.Module):
    @classmethod
    def build(cls, spec: EnvSpec, config: Any) -> Model:
        model = cls()
        model.value = Layers.from_config(spec, config).from_obs(spec.obs_shape[0], 1)
        return model


class Values(Learner):
    name, lane, action_kinds = "values", "replay", ("discrete",)
    config_type: ClassVar[type[AlgorithmConfig]] = ReplayConfig
    model_type = Model

    def loss(self, batch):
        values = self.model.value(batch["obs"])
        return Loss({"loss": (values.squeeze(-1) - batch["rewards"]).square().mean()})


class Difference(Values):
    def loss(self, batch):
        values = self.model.value(batch["obs"])
        return Loss({"loss": (values - batch["rewards"]).square().mean()})


class MeanSquare(Values):
    def loss(self, batch):
        values = self.model.value(batch["obs"])
        return Loss({"loss": mse_loss(values, batch["rewards"])})


class Pairs(Values):
    """Every pair of rows, on purpose."""

    def loss(self, batch):
        values = self.model.value(batch["obs"])
        return Loss({"loss": (values - values.reshape(1, -1)).square().mean()})


def warnings_of(kind: type[Learner], capsys: pytest.CaptureFixture[str], *, members: int = 1) -> list[str]:
    learners = [kind.build(SPEC, hidden_sizes=()) for _ in range(members)]
    batch = BATCH if members == 1 else {name: torch.stack([rows] * members) for name, rows in BATCH.items()}
    updater = Updater(learners)
    for _ in range(3):
        updater.update(batch)
    return capsys.readouterr().err.splitlines()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kind", [Difference, MeanSquare])
def test_a_loss_over_all_pairs_of_rows_is_named_with_its_line(kind, members, capsys):
    line = inspect.getsourcelines(kind.loss)[1] + 2
    assert warnings_of(kind, capsys, members=members) == [
        f"{kind.__name__}.loss combines values of the shapes [6, 1] and [6] to [6, 6] ({Path(__file__).name}:{line}); "
        "if that is a mistake, use squeeze(-1) on the first"
    ]


CELL = """
class InCell(Values):
    def loss(self, batch):
        return Loss({"loss": (self.model.value(batch["obs"]) - batch["rewards"]).square().mean()})
"""


def test_a_class_of_a_notebook_is_watched_too(capsys):
    names = {"Values": Values, "Loss": Loss, "__name__": "__main__"}
    exec(compile(CELL, "<cell 7>", "exec"), names)
    (line,) = warnings_of(names["InCell"], capsys)  # type: ignore[arg-type]
    assert "(<cell 7>:4)" in line


class Elsewhere(Values):
    """Calls a function of another file, such as one of a package for losses."""

    def loss(self, batch):
        names: dict[str, Any] = {}
        exec(compile("def difference(a, b):\n    return a - b", "losses.py", "exec"), names)
        return Loss({"loss": names["difference"](self.model.value(batch["obs"]), batch["rewards"]).square().mean()})


@pytest.mark.parametrize("kind", [Values, Pairs, Elsewhere, DQNAlgorithm])
def test_other_losses_are_not(kind, capsys):
    assert warnings_of(kind, capsys) == []
