"""Rewards of replay algorithms, scaled by running statistics of discounted returns."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms import CATALOGUE
from rl_training.experiment.assembly import assemble
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.machine import choose
from rl_training.models.encoders import Statistics
from rl_training.models.replay_reward_scale import ReplayRewardScale, ReturnStatistics
from rl_training.runtime.engine import train
from rl_training.types import EnvSpec

GAMMA = 0.5


def added(scale: ReplayRewardScale, rewards: list[float], ends: list[int]) -> ReplayRewardScale:
    returns, sums = ReturnStatistics(scale.statistics(), scale.largest, GAMMA), torch.zeros(1)
    for reward, end in zip(rewards, ends, strict=True):
        returns.add(sums, torch.tensor([reward]), torch.tensor([float(end)]))
    return scale


def test_rewards_are_divided_by_the_std_of_the_returns():
    scale = added(ReplayRewardScale(), [1.0, 2.0, 4.0], [0, 1, 0])  # returns 1, 2 + 0.5 * 1, and 4 in the next episode
    std = math.sqrt((1.5**2 + 0 + 1.5**2) / 3)
    assert scale(torch.tensor([6.0])).item() == pytest.approx(6 / std, rel=1e-5)
    assert scale.largest == 4


def test_a_large_return_is_scaled_to_five():
    scale = added(ReplayRewardScale(), [0.0] * 99 + [-20.0], [0] * 100)
    assert scale.std < 20 / 5
    assert scale(torch.tensor([-20.0])).item() == pytest.approx(-5)


def test_rewards_keep_their_values_while_all_returns_are_zero():
    scale = added(ReplayRewardScale(), [0.0, 0.0, 0.0], [0, 1, 0])
    assert scale(torch.tensor([1.0])).item() == 1  # of a goal that hindsight has put in
    assert added(scale, [1.0], [0])(torch.tensor([1.0])).item() < 10


def test_members_of_a_population_have_their_own_statistics():
    mean, std, count, largest = torch.zeros(2), torch.ones(2), torch.zeros(2), torch.zeros(2)
    returns, sums = ReturnStatistics(Statistics(mean, std, count), largest, GAMMA), torch.zeros(2, 3)
    rewards = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, -9.0]])
    returns.add(sums, rewards, torch.zeros(2, 3))
    returns.add(sums, torch.zeros(2, 3), torch.zeros(2, 3))
    seen = torch.cat([rewards, rewards / 2], 1)
    torch.testing.assert_close(mean, seen.mean(1))
    torch.testing.assert_close(std, seen.std(1, unbiased=False))
    assert largest.tolist() == [3, 9]


@pytest.mark.parametrize(("name", "phase"), [("sac", "critics"), ("td3", "critic_loss"), ("crossq", "critics")])
def test_the_loss_reads_scaled_rewards(name, phase):
    plain: Any = CATALOGUE[name].build(EnvSpec((3,), "box", 2), hidden_sizes=(8,))
    scaled: Any = copy.deepcopy(plain)
    scaled.reward_scale = added(ReplayRewardScale(), [4.0, 9.0], [0, 0])
    obs, rewards = torch.randn(2, 6, 3), torch.rand(6)
    batch = {"obs": obs[0], "next_obs": obs[1], "actions": torch.rand(6, 2), "dones": torch.zeros(6)}
    losses = []
    for learner, given in ((scaled, rewards), (plain, scaled.reward_scale(rewards)), (plain, rewards)):
        torch.manual_seed(0)
        losses.append(getattr(learner, phase)({**batch, "rewards": given}).total.item())
    assert losses[0] == pytest.approx(losses[1])
    assert losses[0] != pytest.approx(losses[2])


def test_it_is_on_with_simba_v2_alone():
    options: Any = CATALOGUE["sac"].config_type
    found = [options(network=each).normalize_rewards for each in (None, "simba", "simba_v2")]
    assert found == [False, False, True]


def discounted(rewards: Any, ends: Any, gamma: float) -> Any:
    """Returns [time, envs] by a loop."""
    total, found = np.zeros(rewards.shape[1]), []
    for reward, end in zip(rewards, ends, strict=True):
        total = gamma * total + reward
        found.append(total)
        total = total * (1 - end)
    return np.array(found)


@pytest.mark.parametrize("changes", [
    {}, {"num_envs": 3}, {"num_envs": 4, "env_backend": "device", "env_kwargs": {}},
    {"num_envs": 2, "overlap_updates": "on"},
], ids=["one", "three", "device", "overlap"])  # fmt: skip
@pytest.mark.parametrize("members", [1, 2])
def test_the_statistics_are_those_of_every_step(changes, members):
    options = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 100, "normalize_rewards": True, "gamma": 0.9}
    run = {"algo": "sac", "total_timesteps": 120, "algo_kwargs": options, "log": ()}
    common = {**run, "env_id": "Pendulum-v1", "env_kwargs": {"max_episode_steps": 20}}
    configs = [parse_config({**common, **changes, "seed": seed}) for seed in range(members)]
    state, parts = assemble(configs, choose(configs[0]), 120)
    train(state)
    replay: Any = state.lane.source
    for number, part in enumerate(parts):
        rows = replay.rows(0, replay.added, **({"member": number} if members > 1 else {}))
        rewards, ends = (
            np.asarray(each, np.float64).reshape(-1, changes.get("num_envs", 1))
            for each in (rows["rewards"], rows["dones"] + rows["truncated"])
        )
        assert ends.any() or "env_backend" in changes  # there, episodes have 200 steps
        scale: Any = part.learner.reward_scale
        returns = discounted(rewards, ends, 0.9)
        found = [scale.mean.item(), scale.std.item(), scale.count.item(), scale.largest.item()]
        expected = [returns.mean(), returns.std(), returns.size, np.abs(returns).max()]
        np.testing.assert_allclose(found, expected, rtol=1e-3)
        part.close()
