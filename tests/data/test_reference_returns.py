"""Normalised scores of D4RL's tasks, by any name they go under."""

import pytest

from rl_training.data import normalized_score


@pytest.mark.parametrize("env_id", ["Hopper-v4", "Hopper-v5", "hopper-medium-v2", "hopper-medium-replay-v0", "hopper"])
def test_a_hopper_return_of_1422_scores_44_by_every_name(env_id):
    assert normalized_score(env_id, 1422) == pytest.approx(44.315, abs=5e-4)


@pytest.mark.parametrize(
    ("env_id", "random", "expert"),
    [
        ("HalfCheetah-v4", -280.178953, 12135.0),
        ("Walker2d-v5", 1.629008, 4592.3),
        ("Ant-v5", -325.6, 3879.7),
        ("antmaze-umaze-diverse-v2", 0.0, 1.0),
        ("maze2d-large-v1", 6.7, 273.99),
        ("maze2d-large-dense-v1", 30.569041, 303.48573827),
        ("pen-human-v1", 96.262799, 3076.8331017826877),
    ],
)
def test_a_random_policy_scores_0_and_an_expert_100(env_id, random, expert):
    assert normalized_score(env_id, random) == 0
    assert normalized_score(env_id, expert) == pytest.approx(100)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "AdroitHandPen-v1", "HopperHop-v0"])
def test_an_environment_without_reference_has_no_score(env_id):
    assert normalized_score(env_id, 1.0) is None
