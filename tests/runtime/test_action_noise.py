"""Noise on actions: what each kind draws, and where the lane adds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms import DQNConfig, SACConfig, TD3Config
from rl_training.envs.pools.pool import EnvPool
from rl_training.models.replay_reward_scale import ReplayRewardScale, ReturnStatistics
from rl_training.runtime.lanes import Actor
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import Action


class Constant:
    """Always the same action."""

    def __init__(self, value: float) -> None:
        self.value = value

    def act(self, obs: Any, memory: Any = None, **_: Any) -> Action:
        return Action(torch.full((len(obs), 1), self.value))


def noise_of(steps: int, noise: ActionNoise) -> torch.Tensor:
    """One long walk for each of 500 environments, [steps, 500]."""
    generator, now, seen = torch.Generator().manual_seed(0), torch.zeros(500), []
    for _ in range(steps):
        now = noise.next(now, generator)
        seen.append(now)
    return torch.stack(seen)


def new_actor(value: float, noise: ActionNoise | None, max_steps: int = 200) -> Actor:
    pool = EnvPool("Pendulum-v1", 2, env_kwargs={"max_episode_steps": max_steps})
    return Actor(Constant(value), pool, torch.Generator().manual_seed(0), torch.device("cpu"), noise=noise)


def test_options_say_which_noise_there_is():
    assert ActionNoise.build(DQNConfig()) is None
    assert ActionNoise.build(SACConfig()) is None
    assert ActionNoise.build(TD3Config()) == ActionNoise(0.1, 1.0)
    drifting = SACConfig(action_noise="ornstein_uhlenbeck", action_noise_scale=0.5, action_noise_theta=0.1)
    assert ActionNoise.build(drifting) == ActionNoise(0.5, 0.1)


def test_drifting_noise_keeps_what_it_does_not_forget():
    assert ActionNoise(0.0, theta=0.25).next(torch.tensor([0.8]), None).tolist() == pytest.approx([0.6])


@pytest.mark.parametrize(("theta", "correlation"), [(1.0, 0.0), (0.2, 0.8)])
def test_neighbouring_steps_share_what_is_not_forgotten_and_the_deviation_is_the_scale(theta, correlation):
    walk = noise_of(60, ActionNoise(0.3, theta))[40:]
    assert walk.std().item() == pytest.approx(0.3, abs=0.02)
    together = torch.corrcoef(torch.stack([walk[:-1].flatten(), walk[1:].flatten()]))[0, 1]
    assert together.item() == pytest.approx(correlation, abs=0.05)


def test_what_is_taken_and_remembered_is_noisy_and_within_bounds():
    actor = new_actor(0.9, ActionNoise(5.0))
    rows = [actor.step(actor.choose())[0]["actions"] for _ in range(20)]
    assert set(torch.cat(rows).flatten().tolist()) >= {-1.0, 1.0}
    assert torch.cat(rows).abs().max().item() == 1.0


def test_random_steps_and_policies_without_noise_are_left_alone():
    assert new_actor(0.5, None).choose().actions.tolist() == [[0.5], [0.5]]
    actor = new_actor(0.5, ActionNoise(1.0))
    actor.choose(RandomPolicy(actor.pool.spec))
    assert actor.noise_value.tolist() == [[0.0], [0.0]]


def test_the_drift_ends_with_its_episode():
    actor = new_actor(0.0, ActionNoise(1.0, 0.1), max_steps=3)
    drifts = []
    for _ in range(4):
        actor.step(actor.choose())
        drifts.append(actor.noise_value.abs().sum().item())
    assert [drift > 0 for drift in drifts] == [True, True, False, True]


def test_a_resumed_actor_goes_on_with_its_drift():
    actor, resumed = (new_actor(0.0, ActionNoise(1.0, 0.1)) for _ in range(2))
    for _ in range(3):
        actor.step(actor.choose())
    assert resumed.load_state_dict(actor.state_dict()) == []
    assert resumed.choose().actions.equal(actor.choose().actions)


def test_noise_and_reward_sums_start_again_where_the_environments_do():
    actor, resumed = (new_actor(0.0, ActionNoise(1.0, 0.1)) for _ in range(2))
    for each in (actor, resumed):
        scale = ReplayRewardScale()
        each.returns = ReturnStatistics(scale.statistics(), scale.largest, 0.9)
    actor.step(actor.choose())
    state = actor.state_dict()
    assert state["drift"].all()
    assert state["returns"].all()
    state["envs"]["envs"]["0"]["kind"] = "of another kind"
    assert resumed.load_state_dict(state)  # the reasons why the environments were reset
    assert not resumed.noise_value.any()
    assert not resumed.return_sums.any()
