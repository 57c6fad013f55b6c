"""`predict` of an agent: actions, memory, and observations that it refuses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import BC, Dreamer, Memory


@pytest.mark.parametrize("state", [None, "yes", np.zeros(3)])
def test_a_state_in_the_place_of_deterministic_is_refused(agent, state):
    with pytest.raises(TypeError, match="deterministic must be True or False, got"):
        agent.predict(np.zeros(4), state)
    assert agent.predict(np.zeros(4), np.True_) == agent.predict(np.zeros(4))


def test_predictions_have_the_leading_shape_of_the_observations(agent):
    assert agent.predict(np.zeros(4)).shape == ()
    assert agent.predict(np.zeros((3, 4))).shape == (3,)
    assert agent.predict(np.zeros((2, 3, 4))).dtype == np.int64


def test_a_single_discrete_action_can_be_passed_to_step(agent):
    action = agent.predict([0.0, 0.1, 0.02, -0.1])
    assert {action} <= {0, 1}  # hashable, as environments that look actions up expect
    assert isinstance(action, np.integer)


def test_the_pair_that_reset_returns_is_not_an_observation(agent):
    with pytest.raises(ValueError, match=r"the pair \(obs, info\) that reset\(\) returns; pass the observation alone"):
        agent.predict((np.zeros(4), {}))


def test_box_predictions_are_in_the_environments_own_units(tmp_path):
    dataset = {"kind": "random", "rows": 100}
    options: dict[str, Any] = {
        "dataset": dataset,
        "total_timesteps": 2,
        "eval_interval": 0,
        "hidden_sizes": [8],
        "batch_size": 8,
    }
    agent = BC("Pendulum-v1", output_dir=str(tmp_path / "bc"), **options).learn()
    wide = np.random.default_rng(0).normal(size=(500, 3)) * 50
    largest = np.abs(agent.predict(wide, deterministic=False)).max()
    assert 1.0 < largest <= 2.0  # torques of Pendulum; the policy itself says [-1, 1]


def test_predicting_reads_no_file_and_makes_no_environment(agent, monkeypatch):
    monkeypatch.setattr(gym, "make", None)
    monkeypatch.setattr("builtins.open", None)
    assert agent.predict(np.zeros(4)) in (0, 1)


def test_an_agent_that_remembers_goes_on_from_its_memory(tmp_path):
    small = {"size": "tiny", "window": 4, "batch_size": 2, "horizon": 2, "learning_starts": 8, "train_ratio": 1}
    options: dict[str, Any] = {"total_timesteps": 12, "eval_interval": 0, "checkpoint_interval": 12, **small}
    dreamer = Dreamer("CueMemory-v0", output_dir=str(tmp_path / "dreamer"), **options).learn()
    obs, memory = np.random.default_rng(0).integers(256, size=(3, 1, 16, 16), dtype=np.uint8), Memory()
    assert dreamer.predict(obs, memory=memory).shape == (3,)
    once = remembered(memory)
    dreamer.predict(obs, memory=memory)
    assert not np.array_equal(remembered(memory)[0], once[0])
    memory.forget(np.array([False, True, False]))
    dreamer.predict(obs, memory=memory)
    np.testing.assert_allclose(remembered(memory)[1], once[1], rtol=1e-5)  # as at its first observation
    assert not np.allclose(remembered(memory)[0], once[0], rtol=1e-5)
    with pytest.raises(ValueError, match="this memory has 3 environments, got observations of 1"):
        dreamer.predict(obs[0], memory=memory)


@pytest.mark.parametrize("memory", [{}, True, []])
def test_only_a_memory_is_taken_as_memory(agent, memory):
    with pytest.raises(TypeError, match=f"memory must be a Memory of rl_training or None, got {type(memory).__name__}"):
        agent.predict(np.zeros(4), memory=memory)


def remembered(memory: Memory) -> np.ndarray:
    return np.empty(0) if memory.rows is None else memory.rows["deter"].numpy()


def test_wrong_observations_are_refused(agent):
    with pytest.raises(ValueError, match=r"obs must end in shape \(4,\), got \(3,\)"):
        agent.predict(np.zeros(3))
    for wrong in ([np.nan, 0, 0, 0], [1e300, 0, 0, 0]):
        with pytest.raises(ValueError, match="obs holds NaN or infinite values"):
            agent.predict(wrong)


@pytest.mark.parametrize("wrong", ["abc", None, ["0", "0", "0", "0"], [object()] * 4, [1j, 0, 0, 0], (x for x in "a")])
def test_observations_that_are_no_numbers_are_refused(agent, wrong):
    with pytest.raises(ValueError, match=r"^obs must be an array of numbers that ends in shape \(4,\), got "):
        agent.predict(wrong)


def test_numbers_in_an_array_of_objects_are_an_observation(agent):
    row = [0.5, np.float32(-0.5), 1, False]
    assert agent.predict(np.array(row, dtype=object)) == agent.predict(row)
    with pytest.raises(ValueError, match="obs must be an array of numbers"):
        agent.predict(np.array([0.5, "1", 1, 0], dtype=object))
