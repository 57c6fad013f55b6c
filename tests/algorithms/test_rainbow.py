"""Rainbow: C51 with all options on, and nothing else."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms import C51Algorithm, RainbowAlgorithm

ON = ("double", "dueling", "noisy", "prioritized")


def test_every_part_of_the_paper_is_on():
    config = RainbowAlgorithm.config_type()
    assert [getattr(config, option) for option in ON] == [True] * 4
    assert (config.n_step, config.num_atoms, config.priority_alpha, config.priority_beta) == (3, 51, 0.5, 0.4)


def test_it_is_c51_with_these_options(discrete, draw):
    options: dict[str, Any] = {**dict.fromkeys(ON, True), "hidden_sizes": (8,), "n_step": 3}
    batch = {**draw(discrete, 6), "discounts": torch.full((6,), 0.9), "probabilities": torch.arange(1.0, 7.0)}
    totals = []
    for learner in (RainbowAlgorithm, C51Algorithm):
        torch.manual_seed(0)
        built = learner.build(discrete, **options)
        totals.append(built.loss(batch).total)
    assert torch.equal(*totals)


def test_only_the_exponent_of_the_weights_is_scheduled(discrete):
    assert set(RainbowAlgorithm.build(discrete, hidden_sizes=(8,)).schedules()) == {"priority_beta"}


def test_acting_draws_new_noise_at_each_step_and_never_an_even_action(discrete, silence):
    learner, obs = RainbowAlgorithm.build(discrete, hidden_sizes=(8,)), torch.randn(1, 3)
    generator = torch.Generator().manual_seed(0)
    assert len({learner.act(obs, generator=generator).actions.item() for _ in range(40)}) > 1
    silence(learner)
    assert len({learner.act(obs, generator=generator).actions.item() for _ in range(40)}) == 1
