"""Imitation where staying alive pays nothing: an expert's few episodes are matched, and a random policy's are too."""

from __future__ import annotations

import pytest

from rl_training.data import load_transition_dataset

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]  # on two slow or busy cores they take long
# Episodes of 200 steps, in which even a beginner is upright for a tenth of the time.
SHORT = ["total_timesteps=16000", "schedules={}", "env_kwargs={max_episode_steps: 200}", "num_steps=200",
         "discriminator_updates=40", "discriminator_learning_rate=0.002"]  # fmt: skip
RANDOM = ["dataset={kind: random, rows: 4000}", "dataset_episodes=5"]


@pytest.fixture(scope="session")
def experts(shared_data) -> str:
    return str(shared_data / "experts" / "cartpole.npz")


def test_gail_takes_after_an_expert(final_return, experts):
    assert final_return("gail/cartpole_fixed_horizon", *SHORT, dataset=experts) > 150  # of 200


@pytest.mark.slow
def test_gail_takes_after_a_random_policy_if_that_is_the_expert(final_return):
    assert final_return("gail/cartpole_fixed_horizon", *SHORT, *RANDOM) < 60  # random play scores about 22


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_gail_matches_an_expert_from_five_episodes(final_return, experts):
    theirs = load_transition_dataset(experts).episode_returns()[:5].mean().item()
    assert final_return("gail/cartpole_fixed_horizon", dataset=experts) > 0.9 * theirs


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_gail_with_a_random_expert_never_balances_the_pole(final_return):
    assert final_return("gail/cartpole_fixed_horizon", *RANDOM) < 100
