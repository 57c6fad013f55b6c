"""`Agent.predict` of recurrent policies."""

import numpy as np
import pytest

from rl_training import Memory
from rl_training.types import EnvSpec

SPEC = EnvSpec((4,), "discrete", 2)
LSTM = {"hidden_sizes": (8,), "network": {"memory": "lstm", "memory_size": 4}}


def test_a_recurrent_policy_without_a_memory_warns_once_at_the_second_prediction(new_agent, capsys):
    agent = new_agent("ppo", SPEC, **LSTM)
    agent.predict(np.zeros(4))
    assert capsys.readouterr().err == ""  # a single call may be the first step
    agent.predict(np.zeros(4))
    assert "pass memory=rl_training.Memory()" in capsys.readouterr().err
    agent.predict(np.zeros(4))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("options", "memory"), [(LSTM, Memory()), ({}, None)])
def test_a_policy_that_needs_no_reminder_prints_nothing(new_agent, capsys, options, memory):
    agent = new_agent("ppo", SPEC, **options)
    for _ in range(3):
        agent.predict(np.zeros(4), memory=memory)
    assert capsys.readouterr().err == ""
