"""A loss that reads a column that its batch lacks: the error lists the columns and names the line."""

from pathlib import Path

import pytest
import torch

from rl_training.algorithms import DQNAlgorithm, Updater
from rl_training.algorithms.core.updater import Columns
from rl_training.experiment.user_errors import message_of
from rl_training.types import EnvSpec, Loss

SPEC = EnvSpec((4,), "discrete", 2)


class Misspelt(DQNAlgorithm):
    def loss(self, batch):
        return Loss({"loss": batch["reward"].mean()})


@pytest.mark.parametrize(("members", "compile"), [(1, False), (2, False), (1, True), (2, True)])
def test_a_missing_column_is_named_with_those_of_the_batch(members, compile):
    updater = Updater([Misspelt.build(SPEC, hidden_sizes=(8,)) for _ in range(members)], compile=compile)
    with pytest.raises(LookupError) as caught:
        updater.update({name: torch.zeros(members, 8) for name in ("rewards", "dones")})
    message = "no 'reward' among the columns of the batch (dones, rewards); did you mean 'rewards'?"
    assert str(caught.value) == message
    line = Misspelt.loss.__code__.co_firstlineno + 1
    assert f"LookupError: {message} in " in message_of(caught.value)
    assert f"{Path(__file__).name}:{line}" in message_of(caught.value)


@pytest.mark.parametrize(("key", "meant"), [("observations", "obs"), ("terminated", "dones"), ("state", "obs")])
def test_a_column_by_its_name_elsewhere_is_answered_with_the_name_here(key, meant):
    columns = Columns({name: torch.zeros(2) for name in ("obs", "actions", "rewards", "dones")})
    with pytest.raises(LookupError, match=f"did you mean {meant!r}"):
        columns[key]


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("key", ["rewards", "reward", 3])
def test_a_key_error_of_something_else_stays_as_it_is(key, compile):
    class Mistaken(DQNAlgorithm):
        def loss(self, batch):
            return {}[key]

    with pytest.raises(KeyError, match=f"^{key!r}$"):
        Updater([Mistaken.build(SPEC, hidden_sizes=(8,))], compile=compile).update({"rewards": torch.zeros(8)})
