"""Offline learners, from data alone; the behaviour that made the data is the control."""

from __future__ import annotations

import pytest
import torch

from rl_training.data.writers import save_npz
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action, EnvSpec, Policy

SMALL = ["learning_rate=0.001", "batch_size=128", "hidden_sizes=[64,64]"]  # as other learners are packaged
FASTER = "learning_rate=0.003"  # than they are packaged with; half the updates are enough
pytestmark = [pytest.mark.learning, pytest.mark.timeout(400)]  # on two slow or busy cores they take long


class Balancing:
    """Pushes the cart under the falling pole: a hand-written CartPole expert that lasts the whole episode."""

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action((obs @ torch.tensor([0.05, 0.2, 1.0, 0.5]) > 0).long())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "shortened"),
    [
        ("iql", ["total_timesteps=3000", *SMALL]),
        ("iql", ["total_timesteps=3000"]),
        ("xql", []),
        ("td3_bc", ["total_timesteps=1750", FASTER]),
        ("rebrac", ["total_timesteps=1500", FASTER]),
        ("awac", ["total_timesteps=1250", FASTER]),
        ("edac", ["total_timesteps=1500", "num_critics=2"]),
        ("fql", ["total_timesteps=1200"]),
        ("cql", ["total_timesteps=2000", "num_cql_samples=2"]),
        ("cal_ql", ["total_timesteps=2000"]),  # at the pace of cql, and no faster
    ],
)
def test_random_rows_are_enough_for_a_swing_up_by(learner, shortened, reaches, pendulum_rows):
    # They reach -170 to -350; random play scores about -1,240.
    assert reaches(-450, f"{learner}/pendulum", *shortened, dataset=pendulum_rows)


@pytest.mark.slow
def test_mopo_swings_up_in_a_model_of_random_rows(final_return):
    assert final_return("mopo/pendulum") > -450  # it reaches -135 to -145


@pytest.mark.slow
def test_cql_learns_discrete_actions_from_random_play(final_return):
    assert final_return("cql/cartpole", "total_timesteps=2000") > 100  # random play lasts about 22 steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "options"),
    [("iql", ["expectile=0.9", "beta=10"]), ("xql", ["loss_temperature=0.5", "beta=10"]), ("bcq", [])],
)
def test_random_rows_are_enough_to_balance_a_pole_by(learner, options, reaches, cartpole_rows):
    # They reach 416 to 497. IQL with the expectile 0.1 reaches 252, and without its weights, as BC, 36.
    short = ["total_timesteps=1500", "tau=0.02", "gamma=0.95"]
    assert reaches(300, f"{learner}/cartpole", *short, *options, dataset=cartpole_rows)


@pytest.mark.slow
def test_bc_of_the_same_rows_stays_where_they_are(final_return, pendulum_rows):
    assert final_return("bc/pendulum", "total_timesteps=1000", *SMALL, dataset=pendulum_rows) < -1000


def test_bc_learns_an_expert_and_not_a_random_policy(final_return, tmp_path):
    scores = {}
    behaviours: dict[str, Policy] = {"expert": Balancing(), "random": RandomPolicy(EnvSpec((4,), "discrete", 2))}
    for name, policy in behaviours.items():
        save_npz(roll_dataset("CartPole-v1", rows=4_000, policy=policy), tmp_path / f"{name}.npz")
        changes = {"dataset": str(tmp_path / f"{name}.npz"), "env_id": "CartPole-v1"}
        scores[name] = final_return("bc/pendulum", "total_timesteps=1000", *SMALL, **changes)
    assert scores["expert"] > 450
    assert scores["random"] < 200
