"""Datasets rolled from policies, and episodes played to judge them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.policies import RandomPolicy, SometimesRandom
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Action, EnvSpec

CARTPOLE = EnvSpec((4,), "discrete", 2)


class AlwaysLeft:
    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        return Action(torch.zeros(len(obs), dtype=torch.int64))


def test_the_same_recipe_gives_the_same_rows():
    first, again, other = (roll_dataset("CartPole-v1", rows=100, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_no_transition_crosses_episodes_and_truncation_is_not_termination():
    columns = roll_dataset("CartPole-v1", rows=400).columns
    ends = (columns["dones"] + columns["truncated"]).bool()
    assert torch.equal(columns["obs"][1:][~ends[:-1]], columns["next_obs"][:-1][~ends[:-1]])
    assert columns["truncated"].sum() == 8 - columns["dones"][49::50].sum()  # eight environments, truncated once each


def test_a_sometimes_random_policy_acts_randomly_with_probability_epsilon():
    policy = SometimesRandom(AlwaysLeft(), CARTPOLE, epsilon=0.5)
    actions = policy.act(torch.zeros(20_000, 4), generator=torch.Generator().manual_seed(0)).actions
    assert actions.float().mean().item() == pytest.approx(0.5 / 2, abs=0.02)  # half random, of which half go right


def test_evaluation_plays_each_episode_once_whatever_its_length():
    twenty = evaluate(AlwaysLeft(), "CartPole-v1", episodes=20, seed=3)
    assert len(twenty.returns) == 20
    assert twenty.returns == [float(length) for length in twenty.lengths]  # the reward is 1 per step
    assert twenty == evaluate(AlwaysLeft(), "CartPole-v1", episodes=20, seed=3)


class Counting:
    """Counts the steps of each episode in its memory."""

    def __init__(self):
        self.counts, self.modes = [], set()

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        zeros = torch.zeros(len(obs), dtype=torch.int64)
        count = zeros if memory is None else torch.where(memory["is_first"] > 0, 0, memory["count"] + 1)
        self.counts.append(count[0].item())
        self.modes.add(deterministic)
        return Action(zeros, {"count": count, "is_first": torch.zeros(len(obs))})


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluation_clears_the_memory_after_a_truncated_episode(deterministic):
    policy, limit = Counting(), {"max_episode_steps": 3}
    evaluate(policy, "CartPole-v1", env_kwargs=limit, episodes=17, seed=0, deterministic=deterministic)  # 16 at a time
    assert policy.counts == [0, 1, 2, 0, 1, 2]
    assert policy.modes == {deterministic}


def test_evaluation_keeps_the_default_generator():
    before = torch.get_rng_state()
    evaluate(RandomPolicy(CARTPOLE), "CartPole-v1", episodes=2, seed=0, deterministic=False)
    assert torch.get_rng_state().equal(before)


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.dropout = nn.Dropout(0.9).eval(), nn.Dropout(0.9)

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        assert torch.equal(self.dropout(torch.ones(9)), torch.ones(9))
        return Action(torch.zeros(len(obs), dtype=torch.int64))


def test_dropout_is_off_in_an_evaluation_and_on_afterwards():
    policy = WithDropout()
    evaluate(policy, "CartPole-v1", episodes=2, seed=0)
    assert (policy.training, policy.dropout.training, policy.frozen.training) == (True, True, False)
    with pytest.raises(ValueError, match="not found"):
        evaluate(policy, "CartPol-v1", episodes=2, seed=0)
    assert policy.dropout.training


def test_the_summary_has_a_normalised_score_for_d4rl_environments():
    evaluation = evaluate(RandomPolicy(CARTPOLE), "CartPole-v1", episodes=2, seed=0)
    assert "normalized_score" not in evaluation.summary("CartPole-v1")
    # D4RL's Hopper: random -20.272305, expert 3234.3
    score = evaluation._replace(returns=[3234.3]).summary("Hopper-v5")["normalized_score"]
    assert score == pytest.approx(100.0)


def test_zero_episodes_are_refused():
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(AlwaysLeft(), "CartPole-v1", episodes=0, seed=0)
