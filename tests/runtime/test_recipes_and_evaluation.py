"""Datasets rolled from policies, and episodes played to judge them."""

from __future__ import annotations

import pytest
import torch

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


def test_no_row_crosses_an_episode_and_a_cut_is_no_death():
    columns = roll_dataset("CartPole-v1", rows=400).columns
    ends = (columns["dones"] + columns["truncated"]).bool()
    assert torch.equal(columns["obs"][1:][~ends[:-1]], columns["next_obs"][:-1][~ends[:-1]])
    assert columns["truncated"].sum() == 8 - columns["dones"][49::50].sum()  # eight environments, cut once each


def test_a_sometimes_random_policy_errs_with_its_probability():
    policy = SometimesRandom(AlwaysLeft(), CARTPOLE, epsilon=0.5)
    actions = policy.act(torch.zeros(20_000, 4), generator=torch.Generator().manual_seed(0)).actions
    assert actions.float().mean().item() == pytest.approx(0.5 / 2, abs=0.02)  # half random, of which half go right


def test_evaluation_plays_each_episode_once_whatever_their_lengths():
    twenty = evaluate(AlwaysLeft(), "CartPole-v1", episodes=20, seed=3)
    assert len(twenty.returns) == 20
    assert twenty.returns == [float(length) for length in twenty.lengths]  # CartPole pays 1 a step
    assert twenty == evaluate(AlwaysLeft(), "CartPole-v1", episodes=20, seed=3)


def test_evaluation_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    evaluate(RandomPolicy(CARTPOLE), "CartPole-v1", episodes=2, seed=0, deterministic=False)
    assert torch.get_rng_state().equal(before)


def test_summary_has_the_normalised_score_where_there_is_one():
    played = evaluate(RandomPolicy(CARTPOLE), "CartPole-v1", episodes=2, seed=0)
    assert "normalized_score" not in played.summary("CartPole-v1")
    # D4RL's Hopper: random -20.272305, expert 3234.3
    score = played._replace(returns=[3234.3]).summary("Hopper-v5")["normalized_score"]
    assert score == pytest.approx(100.0)


def test_no_episodes_is_a_mistake():
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate(AlwaysLeft(), "CartPole-v1", episodes=0, seed=0)
