"""Online learners, each far above what random play scores."""

from __future__ import annotations

import pytest

SMALL = ["schedules={}", "hidden_sizes=[64,64]", "batch_size=64"]
HALF = "updates_per_collect=32"  # of what most are packaged with
pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]  # on two slow or busy cores they take long


def test_sac_swings_the_pendulum_up(final_return):
    shortened = ("total_timesteps=2500", "learning_starts=500", "batch_size=64", "hidden_sizes=[64,64]")
    faster = ("learning_rate=0.003", "tau=0.02", "gamma=0.95")
    assert final_return("sac/pendulum", *shortened, *faster) > -300  # random play scores about -1,240


@pytest.mark.slow
def test_sac_swings_it_up_at_the_rates_it_is_packaged_with(final_return):
    assert final_return("sac/pendulum", "total_timesteps=5000", "batch_size=128", "hidden_sizes=[64,64]") > -300


def test_mbpo_swings_it_up_with_far_fewer_steps(final_return):
    shortened = ("total_timesteps=700", "model_members=3", "model_elites=2", "model_max_epochs=80")
    faster = ("updates_per_collect=8", "learning_rate=0.003", "tau=0.02")
    assert final_return("mbpo/pendulum", *shortened, *faster) > -500  # where sac and random play score below -1,200


@pytest.mark.slow
def test_mbpo_swings_it_up_as_it_is_packaged(final_return):
    assert final_return("mbpo/pendulum", "total_timesteps=2000") > -300


def test_dqn_balances_the_pole(final_return):
    assert final_return("dqn/cartpole", "total_timesteps=5000", HALF, *SMALL) > 70  # random play scores about 22


@pytest.mark.parametrize(
    ("learner", "shortened"),
    [
        ("c51", [HALF, "total_timesteps=5000"]),
        ("fqf", [HALF, "total_timesteps=3500", "num_quantiles=8"]),
        ("iqn", [HALF, "total_timesteps=5000"]),
        ("qr_dqn", ["total_timesteps=4000"]),
        ("rainbow", [HALF, "total_timesteps=3000"]),
    ],
)
def test_the_rest_of_its_family_balances_it_too(learner, shortened, final_return):
    assert final_return(f"{learner}/cartpole", *shortened, *SMALL) > 100  # they reach 130 to 250


def test_ppo_balances_the_pole(final_return):
    assert final_return("ppo/cartpole", "total_timesteps=25600", "schedules={}") > 400


@pytest.mark.slow
def test_ppo_swings_the_pendulum_up_with_continuous_actions(final_return):
    assert final_return("ppo/pendulum") > -350


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dreamer_catches_what_falls_by_its_pixels(final_return):
    assert final_return("dreamer/catch") > 0.8  # it reaches 1; random play scores -0.6
