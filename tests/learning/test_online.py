"""Online learners, each far above what random play scores."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]  # on two slow or busy cores they take long


def test_sac_swings_the_pendulum_up(final_return):
    score = final_return("sac/pendulum", "total_timesteps=5000", "batch_size=128", "hidden_sizes=[64,64]")
    assert score > -300  # random play scores about -1,240


def test_dqn_balances_the_pole(final_return):
    shortened = ("total_timesteps=8000", "schedules={}", "hidden_sizes=[64,64]", "batch_size=64")
    assert final_return("dqn/cartpole", *shortened) > 70  # random play scores about 22


@pytest.mark.parametrize("learner", ["c51", "fqf", "iqn", "qr_dqn", "rainbow"])
def test_the_rest_of_its_family_balances_it_too(learner, final_return):
    shortened = ("total_timesteps=5000", "schedules={}", "hidden_sizes=[64,64]", "batch_size=64")
    assert final_return(f"{learner}/cartpole", *shortened, "updates_per_collect=32") > 100  # they reach 150 to 350


def test_ppo_balances_the_pole(final_return):
    assert final_return("ppo/cartpole", "total_timesteps=25600", "schedules={}") > 400


@pytest.mark.slow
def test_ppo_swings_the_pendulum_up_with_continuous_actions(final_return):
    assert final_return("ppo/pendulum") > -350
