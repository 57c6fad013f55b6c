"""MBPO and MOPO: SAC on two kinds of rows, a model beside it, and the uncertainty that MOPO penalises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rl_training.algorithms import MBPOAlgorithm, MBPOConfig, MOPOAlgorithm
from rl_training.algorithms.mopo import disagreement, ensemble_std, max_std
from rl_training.models import Prediction

SMALL: dict[str, Any] = {"model_members": 3, "model_elites": 2, "model_hidden_sizes": (8,), "hidden_sizes": (8, 8)}


def foreseen() -> Prediction:
    """Of two members and one row: an observation of two numbers, and the reward."""
    mean = torch.tensor([[[1.0, 0.0, 9.0]], [[-1.0, 4.0, -9.0]]])
    log_var = torch.tensor([[[1.0, 4.0, 4.0]], [[9.0, 1.0, 1.0]]]).log()  # deviations 1, 2, 2 and 3, 1, 1
    return Prediction(mean, log_var, torch.zeros(2, 1))


def test_the_penalty_is_the_longest_vector_of_deviations_reward_included():
    assert max_std(foreseen()).item() == pytest.approx(math.sqrt(9 + 1 + 1))  # the other has sqrt(1 + 4 + 4)


def test_disagreement_is_the_distance_of_the_farthest_observation_from_the_mean():
    assert disagreement(foreseen()).item() == pytest.approx(math.sqrt(1 + 4))  # the mean is (0, 2)


def test_ensemble_std_is_the_root_of_the_mean_variance_of_observations():
    assert ensemble_std(foreseen()).item() == pytest.approx(math.sqrt((1 + 4) / 2))


@pytest.mark.parametrize(("penalty", "variance"), [("max_std", 11), ("disagreement", 5), ("ensemble_std", 2.5)])
def test_mopo_subtracts_the_chosen_penalty_from_the_reward(box, penalty, variance):
    learner = MOPOAlgorithm.build(box, penalty=penalty, penalty_coefficient=2.0, **SMALL)
    paid = learner.imagined_rewards(torch.tensor([10.0]), foreseen())
    assert paid.item() == pytest.approx(10 - 2 * math.sqrt(variance))


def test_mbpo_is_paid_what_the_model_says(box):
    rewards = torch.tensor([10.0])
    assert MBPOAlgorithm.build(box, **SMALL).imagined_rewards(rewards, foreseen()).equal(rewards)


def test_model_and_policy_are_updated_apart(box, draw):
    learner, batch = MBPOAlgorithm.build(box, **SMALL), draw(box, 16)
    before = [value.detach().clone() for value in learner.parameters()]
    metrics = learner.update_model(batch).metrics
    assert {"mbpo_model_loss", "reward_mae"} <= metrics.keys()
    assert all(a.equal(b) for a, b in zip(before, learner.parameters(), strict=True))
    foreseen = {name: value.detach().clone() for name, value in learner.model_updater.params.items()}
    assert "critic_loss" in learner.update(batch).metrics
    assert all(value.equal(foreseen[name]) for name, value in learner.model_updater.params.items())


def test_updates_of_the_model_make_it_better(box, draw):
    learner, batch = MBPOAlgorithm.build(box, **SMALL, model_learning_rate=0.01), draw(box, 64)
    batch["rewards"] = batch["obs"].sum(-1)
    maes = [learner.update_model(batch).metrics["reward_mae"].item() for _ in range(100)]
    assert maes[-1] < 0.5 * maes[0]


def test_several_steps_in_one_row_are_refused():
    with pytest.raises(ValueError, match="n_step"):
        MBPOConfig(n_step=3)
