"""`Memory`: flags for ended episodes, and memories of other agents."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training import Memory
from rl_training.types import Action


def filled(environments: int) -> Memory:
    memory = Memory()
    memory.keep(Action(torch.zeros(environments), {"is_first": torch.zeros(environments)}))
    return memory


def first(memory: Memory) -> list[float]:
    assert memory.rows is not None
    return memory.rows["is_first"].tolist()


@pytest.mark.parametrize("flag", [True, np.bool_(True), np.array(True), np.array([True]), torch.tensor(True), [True]])
def test_one_environment_takes_a_single_flag(flag):
    memory = filled(1)
    memory.forget(flag)
    assert first(memory) == [1.0]
    memory.forget(not flag if isinstance(flag, bool) else False)
    assert first(memory) == [0.0]


@pytest.mark.parametrize("flags", [[True, False, True], np.array([1, 0, 1]), torch.tensor([1.0, 0.0, 1.0])])
def test_several_environments_take_a_flag_each(flags):
    memory = filled(3)
    memory.forget(flags)
    assert first(memory) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("flags", [True, [True, False], np.ones((3, 1))])
def test_another_number_of_flags_is_refused(flags):
    with pytest.raises(ValueError, match="forget needs one flag for each of the 3 environments of this memory, got"):
        filled(3).forget(flags)


def test_a_new_memory_has_nothing_to_forget():
    memory = Memory()
    memory.forget(True)
    assert memory.rows is None
