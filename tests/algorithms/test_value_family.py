"""What every member of the DQN family does: it takes every option, alone, in a population, on vectors and pixels."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from rl_training.algorithms import CATALOGUE, DQNAlgorithm, Updater
from rl_training.types import Batch, EnvSpec

FAMILY = sorted(name for name, learner in CATALOGUE.items() if issubclass(learner, DQNAlgorithm))
PIXELS = EnvSpec((1, 36, 36), "discrete", 3, obs_dtype="uint8")
NOISE = ("iqn", "rainbow")  # whose loss is drawn


def small(name: str, spec: EnvSpec, **options: Any) -> Any:
    few: dict[str, Any] = {"num_quantiles": 5} if "num_quantiles" in CATALOGUE[name].config_type.model_fields else {}
    return CATALOGUE[name].build(spec, hidden_sizes=(8, 8), learning_rate=1e-2, **few, **options)


def drawn_by_priority(rows: Batch) -> Batch:
    """The same rows as prioritised replay of several steps hands them out."""
    numbers = rows["rewards"]
    return {**rows, "discounts": torch.full_like(numbers, 0.9), "probabilities": torch.rand_like(numbers) + 0.1}


@pytest.fixture(params=FAMILY)
def name(request) -> str:
    return str(request.param)


def test_the_family_is_whole():
    assert FAMILY == ["c51", "dqn", "fqf", "iqn", "qr_dqn", "rainbow"]


@pytest.mark.parametrize(("double", "dueling", "noisy"), list(product([False, True], repeat=3)))
def test_every_member_takes_every_option(name, discrete, draw, double, dueling, noisy):
    learner = small(name, discrete, double=double, dueling=dueling, noisy=noisy)
    before = {each: value.detach().clone() for each, value in learner.model.named_parameters()}
    result = learner.update(drawn_by_priority(draw(discrete, 6)))
    assert [each for each, value in learner.model.named_parameters() if value.equal(before[each])] == []
    assert all(value.isfinite() for value in result.metrics.values())
    assert result.priorities is not None
    assert (result.priorities >= 0).all()
    assert result.priorities.shape == (6,)


def test_every_member_learns_from_pixels_alone_and_in_a_population(name):
    obs = torch.randint(255, (2, 2, 3, 1, 36, 36), dtype=torch.uint8)
    zeros = torch.zeros(2, 3)
    rows = {"obs": obs[0], "next_obs": obs[1], "actions": zeros.long(), "rewards": zeros + 1, "dones": zeros}
    population = Updater([small(name, PIXELS, dueling=True, noisy=True) for _ in range(2)])
    result = population.update(rows)
    assert result.priorities is not None
    assert result.priorities.shape == (2, 3)
    assert population.population is not None
    actions = population.population.act(obs[0], generator=torch.Generator().manual_seed(0)).actions
    assert actions.shape == (2, 3)


def test_members_of_a_population_draw_noise_of_their_own(name, discrete):
    learners = [small(name, discrete, noisy=True) for _ in range(2)]
    learners[1].load_state_dict(learners[0].state_dict())
    population = Updater(learners).population
    assert population is not None
    obs, generator = torch.randn(1, 1, 3).expand(2, 1, 3), torch.Generator().manual_seed(0)
    actions = torch.stack([population.act(obs, generator=generator).actions for _ in range(40)])
    assert (actions[:, 0] != actions[:, 1]).any()


def test_environments_explore_apart_by_noise(name, discrete):
    learner, obs = small(name, discrete, noisy=True, dueling=True), torch.randn(1, 3).expand(40, 3)
    actions = learner.act(obs, generator=torch.Generator().manual_seed(0)).actions
    assert len(set(actions.tolist())) > 1
    assert len(set(learner.act(obs, deterministic=True).actions.tolist())) == 1


@pytest.mark.parametrize("quiet", sorted(set(FAMILY) - set(NOISE)))
def test_the_loss_is_the_mean_of_its_rows_by_their_weights(quiet, discrete, draw):
    learner, batch = small(quiet, discrete, priority_beta=1.0), draw(discrete, 3)
    alone = [learner.loss({column: rows[i : i + 1] for column, rows in batch.items()}).terms for i in range(3)]
    together = learner.loss({**batch, "probabilities": torch.tensor([4.0, 1.0, 2.0])}).terms
    for term in together:
        expected = (0.25 * alone[0][term] + alone[1][term] + 0.5 * alone[2][term]) / 3
        torch.testing.assert_close(together[term], expected)


def test_a_time_limit_is_not_an_end_and_a_termination_is(name, discrete, draw):
    learner, batch = small(name, discrete), draw(discrete, 6)
    ended, limited = ({**batch, "dones": flags, "truncated": 1 - flags} for flags in (torch.ones(6), torch.zeros(6)))
    torch.manual_seed(0)
    running = learner.loss({**batch, "dones": torch.zeros(6), "truncated": torch.zeros(6)}).total
    torch.manual_seed(0)
    assert torch.equal(learner.loss(limited).total, running)
    target = learner.loss(ended).metrics["target_q_mean"].item()
    assert target == pytest.approx(batch["rewards"].mean().item(), abs=1e-4)
