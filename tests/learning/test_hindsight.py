"""With hindsight, policies reach goals with sparse rewards that they never reach without it at the same budget."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]
TEN_BITS = {"total_timesteps": 2_500, "env_kwargs": {"bits": 10}}
FASTER = ("collect_steps=4", "learning_rate=0.003", "tau=0.1", "gamma=0.95")


def test_dqn_flips_the_right_bits(final_return):
    assert final_return("dqn/bit_flip", *FASTER, **TEN_BITS) > -7  # the best policy scores about -4


@pytest.mark.slow
def test_without_hindsight_it_does_not(final_return):
    assert final_return("dqn/bit_flip", *FASTER, "hindsight=none", **TEN_BITS) < -13


@pytest.mark.slow
def test_sac_moves_the_point_to_its_goal(final_return):
    faster = ("collect_steps=2", "batch_size=64", "learning_rate=0.003", "tau=0.02", "learning_starts=500")
    assert final_return("sac/point_goal", *faster, total_timesteps=5_000) > -25  # the best policy scores about -10
