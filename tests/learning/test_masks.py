"""Masked policies open a lock on which most actions are invalid; without masks PPO does not at the same budget."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]
SMALL = {"length": 5, "num_actions": 64}


def test_masked_ppo_opens_the_lock(final_return):
    assert final_return("ppo/combination_lock", env_kwargs=SMALL, total_timesteps=5_000) == 1.0


def test_without_masks_it_stays_closed(final_return):
    unmasked = {**SMALL, "masks": False}
    assert final_return("ppo/combination_lock", env_kwargs=unmasked, total_timesteps=5_000) == 0.0


def test_masked_dqn_opens_a_shorter_lock(final_return):
    shorter = ("collect_steps=4", "target_interval=50", "learning_starts=200")
    assert final_return("dqn/combination_lock", *shorter, env_kwargs={"length": 3}, total_timesteps=1_500) == 1.0


@pytest.mark.slow
def test_masked_sac_opens_a_shorter_lock(final_return):
    faster = ("learning_starts=200", "learning_rate=0.003", "updates_per_collect=2", "tau=0.05", "batch_size=64")
    sparse = ("n_step=1", "gamma=0.95", "temperature=0.01")  # the reward of 1 comes in the last state only
    lock = {"env_id": "CombinationLock-v0", "env_kwargs": {"length": 3}, "total_timesteps": 1_500, "schedules": {}}
    assert final_return("sac/cartpole", *faster, *sparse, **lock) == 1.0
