"""Classic control without velocities: the same episodes, with fewer entries of each observation."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.envs.creation.making import make_env


@pytest.mark.parametrize(
    ("hidden", "whole", "entries"),
    [("CartPoleNoVelocity-v1", "CartPole-v1", [0, 2]), ("PendulumNoVelocity-v1", "Pendulum-v1", [0, 1])],
)
def test_episodes_are_those_of_the_whole_environment_without_velocities(hidden, whole, entries):
    envs = [make_env(name, {}) for name in (hidden, whole)]
    first, second = (env.reset(seed=3)[0] for env in envs)
    assert np.array_equal(first, second[entries])
    envs[1].action_space.seed(0)
    for _ in range(200):
        action = envs[1].action_space.sample()
        mine, other = (env.step(action) for env in envs)
        assert np.array_equal(mine[0], other[0][entries])
        assert envs[0].observation_space.contains(mine[0])
        assert mine[1:4] == tuple(other[1:4])
        if mine[2] or mine[3]:
            assert mine[3] == (whole == "Pendulum-v1")  # its episodes end by their time limit
            break
