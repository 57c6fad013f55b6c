"""A loss that cannot run for several seeds at once: the error names the rule and the line."""

import traceback

import pytest
import torch

from rl_training.algorithms import DQNAlgorithm, Updater
from rl_training.types import EnvSpec

SPEC = EnvSpec((4,), "discrete", 2)
BATCH = {
    "obs": torch.zeros(2, 8, 4), "next_obs": torch.zeros(2, 8, 4), "actions": torch.zeros(2, 8, dtype=torch.int64),
    "rewards": torch.zeros(2, 8), "dones": torch.zeros(2, 8), "truncated": torch.zeros(2, 8),
}  # fmt: skip


class Item(DQNAlgorithm):
    def loss(self, batch):
        loss = super().loss(batch)
        return loss.plus({"more": loss.total * loss.total.item()})


class Branch(DQNAlgorithm):
    def loss(self, batch):
        loss = super().loss(batch)
        return loss if loss.total > 0 else super().loss(batch)


class Gradient(DQNAlgorithm):
    def loss(self, batch):
        for parameter in self.model.q.parameters():
            parameter.requires_grad_(False)
        return super().loss(batch)


class Mistaken(DQNAlgorithm):
    def loss(self, batch):
        return super().loss({**batch, "obs": batch["obs"][:, :3]})


@pytest.mark.parametrize("learner", [Item, Branch, Gradient])
def test_the_rule_of_populations_is_named_at_the_line_of_the_loss(learner):
    updater = Updater([learner.build(SPEC, hidden_sizes=(8,)) for _ in range(2)])
    with pytest.raises(RuntimeError, match=r"must not call \.item\(\), .* PyTorch reports: ") as caught:
        updater.update(BATCH)
    assert "frozen(module) stops gradients" in str(caught.value)
    assert any(frame.filename == __file__ for frame in traceback.extract_tb(caught.tb)[1:])


def test_other_errors_of_a_loss_stay_as_they_are():
    updater = Updater([Mistaken.build(SPEC, hidden_sizes=(8,)) for _ in range(2)])
    with pytest.raises(RuntimeError) as caught:
        updater.update(BATCH)
    assert ".item()" not in str(caught.value)
