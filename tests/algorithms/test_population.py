"""The policies of a population act as those of its members, each with noise of its own."""

from __future__ import annotations

import copy

import torch

from rl_training.algorithms import SACAlgorithm
from rl_training.algorithms.core.population import Population


def test_deterministic_actions_are_the_modes_of_each_member(box):
    learners = [SACAlgorithm.build(box, hidden_sizes=(8,)) for _ in range(2)]
    obs = torch.randn(2, 5, 3)
    alone = [learner.act(rows, deterministic=True).actions for learner, rows in zip(learners, obs, strict=True)]
    torch.testing.assert_close(Population(learners).act(obs, deterministic=True).actions, torch.stack(alone))


def test_sampled_actions_come_from_the_generator_and_differ_between_equal_members(box):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,))
    population, obs = Population([learner, copy.deepcopy(learner)]), torch.zeros(2, 5, 3)
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 1, 2)]
    first, again, other = (population.act(obs, generator=each).actions for each in generators)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


def test_losses_of_equal_members_have_noise_of_their_own(box, draw):
    learner = SACAlgorithm.build(box, hidden_sizes=(8,))
    batch = {name: torch.stack([column, column]) for name, column in draw(box, 4).items()}
    losses = Population([learner, copy.deepcopy(learner)]).loss(batch).total
    assert losses[0] != losses[1]
