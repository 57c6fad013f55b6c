"""Importance sampling and doubly robust estimates on a chain of two steps, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rl_training import TransitionDataset
from rl_training.algorithms import BCAlgorithm
from rl_training.experiment.ope.importance import (
    Episodes,
    doubly_robust,
    importance_weights,
    weighted_importance_sampling,
)
from rl_training.experiment.ope.policies import PolicyActions
from rl_training.experiment.ope.probabilities import (
    NoWeights,
    behaviour_log_probs,
    clipped_log_prob,
    policy_log_probs,
)
from rl_training.models.heads import Gaussian, SquashedGaussian
from rl_training.types import Action, EnvSpec

GAMMA = 0.5
# Actions and rewards of two steps, and the number of episodes. Action 1 is worth 1 + GAMMA * 2 = 2.
KINDS = [((1, 1), (1.0, 2.0), 30), ((1, 0), (1.0, 4.0), 10), ((0, 1), (3.0, 2.0), 10), ((0, 0), (3.0, 4.0), 10)]
LOG_RATIOS = {1: math.log(2), 0: -math.inf}  # of "always 1" against the uniform policy


class Always1:
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.ones(len(obs), dtype=torch.int64))


def chain(kinds=KINDS, **more: torch.Tensor) -> TransitionDataset:
    """Episodes of two states, the second of which terminates."""
    steps = [
        (number, action, reward, number == len(actions) - 1)
        for actions, rewards, count in kinds
        for _ in range(count)
        for number, (action, reward) in enumerate(zip(actions, rewards, strict=True))
    ]
    states, actions, rewards, dones = map(torch.tensor, zip(*steps, strict=True))
    columns = {"obs": torch.eye(2)[states], "actions": actions, "rewards": rewards, "dones": dones.float(), **more}
    columns |= {"next_obs": torch.eye(2)[torch.ones_like(states)], "truncated": torch.zeros(len(states))}
    return TransitionDataset(columns, spec=EnvSpec((2,), "discrete", 2)).with_discounted_returns_to_go(GAMMA)


def ratios(data: TransitionDataset) -> torch.Tensor:
    return torch.tensor([LOG_RATIOS[action] for action in data.columns["actions"].tolist()])


def test_wis_is_the_mean_over_the_episodes_that_agree_with_the_policy_at_each_step():
    data, episodes = chain(), Episodes(chain(), GAMMA)
    weights = importance_weights(episodes, ratios(data))
    found = weighted_importance_sampling(data, episodes, weights, seed=0)
    assert weights.window is None
    assert found.value == pytest.approx(1 + GAMMA * 2)  # without normalisation: 40 * 2 / 60 + GAMMA * 30 * 4 * 2 / 60
    assert found.interval == pytest.approx((2, 2))


def test_an_ended_episode_keeps_its_weight_in_the_later_steps():
    # Half of the episodes with action 1 terminate after the first step, with the reward 1.
    data = chain([((1, 1), (1.0, 2.0), 20), ((1,), (1.0,), 20), ((0, 1), (3.0, 2.0), 20)])
    episodes = Episodes(data, GAMMA)
    found = weighted_importance_sampling(data, episodes, importance_weights(episodes, ratios(data)), seed=0)
    ended, both = 2.0, 4.0  # products of the ratios
    assert found.value == pytest.approx(1 + GAMMA * both * 2 / (both + ended))


def test_weights_of_1_give_the_return_of_the_behaviour_with_truncated_episodes():
    data = chain()
    ends = data.episode_ends.float()
    data = data.with_columns(dones=0 * ends, truncated=ends)
    episodes = Episodes(data, GAMMA)
    weights = importance_weights(episodes, torch.zeros(len(data)))
    found = weighted_importance_sampling(data, episodes, weights, seed=0)
    assert found.value == pytest.approx(float(data.columns["returns_to_go"][data.episode_offsets].mean()), rel=1e-5)
    assert weights.effective == pytest.approx(60)
    assert found.interval.low < found.value < found.interval.high


def test_wis_with_a_discount_per_row():
    data = chain()
    data = data.with_columns(discounts=torch.full((len(data),), 0.25))
    episodes = Episodes(data, GAMMA)
    found = weighted_importance_sampling(data, episodes, importance_weights(episodes, ratios(data)), seed=0)
    assert found.value == pytest.approx(1 + 0.25 * 2)


@pytest.mark.parametrize("wrong", [(7.0, 5.0), (0.0, 0.0), (2.0, 2.0)])
def test_dr_corrects_wrong_values_by_weighted_td_errors(wrong):
    data, episodes = chain(), Episodes(chain(), GAMMA)
    weights = importance_weights(episodes, ratios(data))
    values = torch.tensor(wrong)
    state, done = data.columns["obs"].argmax(1), data.columns["dones"]
    errors = data.columns["rewards"] + GAMMA * (1 - done) * values[1] - values[state]
    first = torch.full((1, 60), wrong[0], dtype=torch.float64)
    found = doubly_robust(episodes, weights, errors.double().unsqueeze(0), first, seed=0)
    assert found.value == pytest.approx(2)


def test_dr_with_exact_values_needs_no_weights():
    data, episodes = chain(), Episodes(chain(), GAMMA)
    weights = importance_weights(episodes, torch.randn(len(data), generator=torch.Generator().manual_seed(0)))
    found = doubly_robust(episodes, weights, torch.zeros(1, len(data)).double(), torch.full((1, 60), 2.0).double(), 0)
    assert found.value == pytest.approx(2)


def test_products_are_cut_to_a_window_that_leaves_enough_episodes():
    # 64 episodes of 32 steps: each step halves the number of episodes that agree, so that all decisions leave none.
    steps, count = 32, 64
    agrees = torch.rand(count, steps, generator=torch.Generator().manual_seed(0)) < 0.5
    ends = (torch.arange(count * steps) % steps == steps - 1).float()
    columns = {"obs": torch.zeros(count * steps, 1), "actions": agrees.flatten().long(), "dones": ends}
    columns |= {"rewards": ends, "next_obs": columns["obs"], "truncated": 0 * ends}
    data = TransitionDataset(columns, spec=EnvSpec((1,), "discrete", 2)).with_discounted_returns_to_go(GAMMA)
    weights = importance_weights(Episodes(data, GAMMA), ratios(data))
    assert weights.window == 1
    assert weights.is_useful
    expected = agrees.double() * 2
    torch.testing.assert_close(weights.values, expected)
    assert 20 < weights.effective < 44  # about half of the episodes agree at each step


def test_the_probability_of_a_greedy_policy_is_1_or_0():
    data = chain()
    found = policy_log_probs(PolicyActions(Always1(), None, 0), data)
    assert found.exp().tolist() == data.columns["actions"].double().tolist()
    assert policy_log_probs(PolicyActions(Always1(), 3, 0), data).equal(found)  # its samples do not vary


def test_a_deterministic_policy_with_box_actions_has_no_weights():
    columns = {name: torch.zeros(4, 1) for name in ("obs", "actions", "next_obs")}
    columns |= {name: torch.zeros(4) for name in ("rewards", "dones", "truncated")}
    data = TransitionDataset(columns)
    policy = BCAlgorithm.build(data.spec, hidden_sizes=(4,))
    with pytest.raises(NoWeights, match="deterministic policy with Box actions has no importance weights; evaluate"):
        policy_log_probs(PolicyActions(policy, None, 0), data)
    assert policy_log_probs(PolicyActions(policy, 1, 0), data).isfinite().all()


def test_logged_probabilities_are_used():
    data = chain(action_prob=torch.full((120,), 0.5))
    behaviour = behaviour_log_probs(data, seed=0)
    assert not behaviour.cloned
    torch.testing.assert_close(behaviour.log_probs.exp(), torch.full((120,), 0.5).double())


def test_logged_densities_are_converted_to_the_units_of_the_policy():
    # Uniform in [-2, 2]: the density is 1/4 there, and 1/2 in [-1, 1].
    columns = {name: torch.zeros(4, 1) for name in ("obs", "actions", "next_obs")}
    columns |= {name: torch.zeros(4) for name in ("rewards", "dones", "truncated")}
    spec = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    data = TransitionDataset({**columns, "action_logprob": torch.full((4,), 0.25).log()}, spec=spec)
    torch.testing.assert_close(behaviour_log_probs(data, seed=0).log_probs.exp(), torch.full((4,), 0.5).double())


def test_logged_densities_have_the_units_in_which_the_actions_were_recorded():
    # Uniform in the recorded range [0, 10], for an agent with the bounds [-2, 2]: 1/10 there, and 1/2 in [-1, 1].
    zeros = np.zeros(4)
    columns = {"obs": zeros[:, None], "actions": np.linspace(0, 10, 4)[:, None], "rewards": zeros, "dones": zeros}
    spec = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
    logged = {"next_obs": zeros[:, None], "truncated": zeros, "action_prob": np.full(4, 0.1)}
    data = TransitionDataset.from_dict({**columns, **logged}, spec=spec, action_range=(0, 10)).to("cpu")
    torch.testing.assert_close(behaviour_log_probs(data, seed=0).log_probs.exp(), torch.full((4,), 0.5).double())


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_impossible_probabilities_are_refused(value):
    with pytest.raises(ValueError, match=r"action_prob must be in \(0, 1\] in every row of the data"):
        behaviour_log_probs(chain(action_prob=torch.full((120,), value)), seed=0)


def test_the_behaviour_is_cloned_where_no_probabilities_are_logged(monkeypatch):
    monkeypatch.setattr("rl_training.experiment.ope.probabilities.CLONING_UPDATES", 150)
    behaviour = behaviour_log_probs(chain(), seed=0)
    first = slice(0, 1)  # action 1 in state 0: 40 of 60 episodes
    assert behaviour.cloned
    assert behaviour.log_probs[first].exp().item() == pytest.approx(40 / 60, abs=0.05)


@pytest.mark.parametrize("kind", [Gaussian, SquashedGaussian])
def test_densities_inside_the_bounds_and_probabilities_at_them_sum_to_1(kind):
    inside = torch.linspace(-0.999, 0.999, 200_001, dtype=torch.float64).unsqueeze(1)
    policy = kind(torch.full_like(inside, 0.6), torch.full_like(inside, -0.5))
    density = clipped_log_prob(policy, inside.clamp(-0.9989999, 0.9989999)).exp()
    edges = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    at_edges = kind(torch.full_like(edges, 0.6), torch.full_like(edges, -0.5))
    total = torch.trapezoid(density, inside.squeeze(1)) + clipped_log_prob(at_edges, edges).exp().sum()
    assert float(total) == pytest.approx(1, abs=1e-3)


def test_a_policy_has_weights_of_1_against_its_own_logged_density():
    mean = torch.full((20_000, 1), 1.5)
    policy = SquashedGaussian(mean, torch.zeros_like(mean))
    actions, logged = policy.sample_with_log_prob(torch.Generator().manual_seed(0))
    assert (actions.abs() > 0.999).any()
    found = clipped_log_prob(policy, actions, at_bounds=False)
    inside = actions.abs().squeeze(1) < 1 - 1e-5  # beyond, float32 has too few digits
    torch.testing.assert_close(found[inside], logged[inside], rtol=1e-3, atol=2e-2)
