"""With hindsight, policies reach goals with sparse rewards that they never reach without it at the same budget."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]
SHORT = {"total_timesteps": 5_000}
FEWER_UPDATES = ("collect_steps=4", "learning_rate=0.002", "tau=0.1")


def test_dqn_flips_the_right_bits(final_return):
    assert final_return("dqn/bit_flip", *FEWER_UPDATES, **SHORT) > -8  # the best policy scores about -6.5


def test_without_hindsight_it_does_not(final_return):
    assert final_return("dqn/bit_flip", *FEWER_UPDATES, "hindsight=none", **SHORT) < -13


def test_sac_moves_the_point_to_its_goal(final_return):
    faster = ("collect_steps=2", "batch_size=64", "learning_rate=0.003", "tau=0.02", "learning_starts=500")
    assert final_return("sac/point_goal", *faster, **SHORT) > -25  # the best policy scores about -10
