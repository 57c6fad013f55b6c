"""`Agent.predict`: memories of recurrent policies, and observations that are no valid input."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import Memory
from rl_training.envs.spaces import with_library_spaces
from rl_training.envs.spec import env_spec_of
from rl_training.types import EnvSpec

SPEC = EnvSpec((4,), "discrete", 2)
LSTM = {"hidden_sizes": (8,), "network": {"memory": "lstm", "memory_size": 4}}


def spec_of(space):
    env = gym.Env()
    env.observation_space, env.action_space = space, spaces.Discrete(2)
    return env_spec_of(with_library_spaces(env))


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


@pytest.mark.parametrize("shape", [(3, 16, 16), (16, 16, 3)])
@pytest.mark.parametrize("pixel", [0.5, 1.5, -1.0, 256.0])
def test_images_that_are_not_whole_pixels_are_refused_and_not_rounded_to_black(new_agent, shape, pixel):
    agent = new_agent("ppo", spec_of(spaces.Box(0, 255, shape, np.uint8)))
    with pytest.raises(ValueError, match=r"obs is an image: its pixels must be integers in 0\.\.255"):
        agent.predict(np.full(shape, pixel))


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (spaces.Box(-1, 1, (4,)), np.zeros(4)),
        (spaces.Box(-1, 1, (3, 4)), np.zeros((3, 4))),
        (spaces.Discrete(5), 2),
        (spaces.Dict(a=spaces.Discrete(3)), {"a": 1}),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), (1, 0)),
        (spaces.Tuple([spaces.Discrete(3), spaces.Dict(a=spaces.Discrete(3))]), (1, {"a": 2})),
    ],
)
def test_the_pair_that_reset_returns_is_refused_by_name_in_every_space(new_agent, space, obs):
    agent = new_agent("ppo", spec_of(space))
    for info in ({}, {"lives": 3}):
        with pytest.raises(ValueError, match=r"obs is the pair \(obs, info\) that reset\(\) returns"):
            agent.predict((obs, info))


def test_observations_with_a_dict_in_second_place_are_no_pair_of_reset(new_agent):
    part = spaces.Dict(a=spaces.Discrete(3))
    batch = new_agent("ppo", spec_of(part))
    assert batch.predict(({"a": 1}, {"a": 2})).shape == (2,)
    single = new_agent("ppo", spec_of(spaces.Tuple([spaces.Discrete(3), part])))
    assert single.predict((1, {"a": 2})).shape == ()
    with pytest.raises(ValueError, match=r"part 1 must be a dict of a, got \['b'\]"):
        single.predict((1, {"b": 2}))
