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


def test_a_single_flag_ends_the_episode_of_one_observation(new_agent):
    agent, memory, fresh = new_agent("ppo", SPEC, **LSTM), Memory(), Memory()
    agent.predict(np.ones(4), memory=memory)
    agent.predict(np.ones(4), memory=fresh)
    memory.forget(np.bool_(True))
    fresh.forget()
    again = [agent.predict(np.zeros(4), memory=each) for each in (memory, fresh)]
    assert again[0] == again[1]


@pytest.mark.parametrize("network", [{"memory": "gru", "memory_size": 4}, {"memory": "lstm", "memory_size": 8}])
def test_a_memory_of_another_agent_is_refused(new_agent, network):
    memory = Memory()
    new_agent("ppo", SPEC, **LSTM).predict(np.zeros(4), memory=memory)
    other = new_agent("ppo", SPEC, **{**LSTM, "network": network})
    with pytest.raises(ValueError, match="this memory is of another agent; create a new one"):
        other.predict(np.zeros(4), memory=memory)


def test_an_agent_without_memory_leaves_that_of_another_agent_as_it_is(new_agent):
    memory = Memory()
    new_agent("ppo", SPEC, **LSTM).predict(np.zeros(4), memory=memory)
    before = memory.rows
    new_agent("ppo", SPEC, hidden_sizes=(8,)).predict(np.zeros(4), memory=memory)
    assert memory.rows is before
