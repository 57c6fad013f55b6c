"""Imitation: the discriminator is fitted on each rollout, and it alone pays the learner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training import streams
from rl_training.algorithms import GAILAlgorithm, GAILConfig, GAILDiscriminator, gail_reward
from rl_training.data import RolloutBuffer
from rl_training.data.datasets.imitation import ImitationBatches, add_absorbing_rows
from rl_training.envs.pools.pool import EnvPool
from rl_training.runtime.lanes import Actor, ImitationLane
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import Batch

SMALL: dict[str, Any] = {"num_steps": 8, "batch_size": 16, "hidden_sizes": (8,), "discriminator_batch_size": 16}


class Paying(CartPoleEnv):
    """CartPole that pays so much a step."""

    def __init__(self, pay: float) -> None:
        super().__init__()
        self.pay = pay

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.pay, terminated, truncated, info


class Shown(GAILAlgorithm):
    """Keeps what it was shown of the last rollout."""

    def prepare(self, batch: Batch) -> Batch:
        self.seen = batch
        return super().prepare(batch)


def new_lane(pay: float = 1.0, **options: Any) -> tuple[ImitationLane, Shown]:
    config = GAILConfig(**{**SMALL, **options})
    pool, rolled = EnvPool(lambda: Paying(pay), 2, seed=1), roll_dataset("CartPole-v1", rows=64).columns
    experts = {name: rolled[name] for name in ("obs", "actions")}
    rows = ImitationBatches(add_absorbing_rows(experts, 2) if config.absorbing_states else experts)
    rows.seed(2)
    spec = replace(pool.spec, obs_shape=rows.experts["obs"].shape[1:])
    with streams.fork(0, "init"):
        learner = Shown.build(pool.spec, config)
        discriminator = GAILDiscriminator.build(spec, config.discriminator())
    actor = Actor(learner, pool, streams.generator(0, "exploration"), torch.device("cpu"))
    return ImitationLane(learner, actor, RolloutBuffer(), config, discriminator=discriminator, rows=rows), learner


@pytest.mark.parametrize("form", ["softplus", "log_d", "logit"])
def test_the_learner_is_paid_by_the_discriminator_as_it_is_after_its_updates(form):
    lane, learner = new_lane(reward_form=form)
    for _ in range(2):
        result = lane.collect(1)
        logits = lane.discriminator.logits(learner.seen["obs"].flatten(0, 1), learner.seen["actions"].flatten(0, 1))
        torch.testing.assert_close(learner.seen["rewards"].flatten(), gail_reward(logits, form))
        assert result.metrics["gail_reward_mean"].item() == pytest.approx(learner.seen["rewards"].mean().item())


def test_the_environments_own_rewards_are_logged_and_never_seen_by_the_learner():
    seen, returns = [], []
    for pay in (1.0, -7.0):
        lane, learner = new_lane(pay)
        results = [lane.collect(1) for _ in range(8)]
        seen.append(learner.seen)
        returns.append([(episode.return_, episode.length) for result in results for episode in result.episodes])
    assert all(column.equal(seen[1][name]) for name, column in seen[0].items())
    assert returns[0]
    assert returns[1] == [(-7.0 * length, length) for _, length in returns[0]]


def test_the_discriminator_takes_as_many_updates_as_asked_after_each_rollout():
    lane, _ = new_lane(discriminator_updates=3)
    before = [parameter.detach().clone() for parameter in lane.discriminator.parameters()]
    lane.collect(1)
    lane.collect(1)
    assert lane.updater.updates == 6
    assert not any(now.equal(then) for now, then in zip(lane.discriminator.parameters(), before, strict=True))
    assert lane.discriminator.normalizer.count == 2 * (16 + 16)  # rows of two rollouts, and as many of the expert's


def test_a_batch_has_as_many_rows_of_the_policy_as_of_the_expert():
    rows = ImitationBatches({"obs": torch.zeros(3, 4), "actions": torch.tensor([1, 1, 0])})
    rows.policy = {"obs": torch.full((5, 4), 9.0), "actions": torch.tensor([0, 1, 0, 1, 0])}
    batch = rows.sample(7)
    assert {name: tuple(column.shape) for name, column in batch.items()} == {
        "obs": (7, 4), "actions": (7,), "expert_obs": (7, 4), "expert_actions": (7,)
    }  # fmt: skip
    assert (batch["obs"] == 9).all()
    assert (batch["expert_obs"] == 0).all()


def test_every_row_of_the_policy_and_of_the_expert_is_sampled():
    rows = ImitationBatches({"obs": torch.arange(3.0).unsqueeze(1), "actions": torch.zeros(3)})
    rows.policy = {"obs": torch.arange(5.0).unsqueeze(1), "actions": torch.zeros(5)}
    batch = rows.sample(500)
    assert batch["obs"].unique().tolist() == [0, 1, 2, 3, 4]
    assert batch["expert_obs"].unique().tolist() == [0, 1, 2]


def test_its_time_is_that_of_the_environments():
    lane, _ = new_lane()
    assert (lane.collect(1).num_env_steps, lane.step, lane.due()) == (16, 16, 10)


def test_every_terminal_end_adds_an_absorbing_row():
    rows = {"obs": torch.tensor([[3.0, 4.0], [5.0, 6.0]]), "actions": torch.tensor([1, 1])}
    added = add_absorbing_rows(rows, 1, weight=0.05)
    assert added["obs"].tolist() == [[3, 4, 0], [5, 6, 0], [0, 0, 1]]
    assert added["actions"].tolist() == [1, 1, 0]
    assert added["weights"].tolist() == pytest.approx([1, 1, 0.05])


def test_an_end_is_paid_what_the_absorbing_state_pays_for_ever():
    lane, learner = new_lane(absorbing_states=True, gamma=0.9)
    for _ in range(8):  # by then a pole has fallen
        lane.collect(1)
        ended = learner.seen["dones"] > 0
        if ended.any():
            break
    obs, actions = (learner.seen[name][ended] for name in ("obs", "actions"))
    last = gail_reward(lane.discriminator.logits(torch.cat([obs, torch.zeros(len(obs), 1)], 1), actions))
    absorbing = gail_reward(lane.discriminator.logits(torch.tensor([[0.0, 0, 0, 0, 1]]), torch.tensor([0])))
    torch.testing.assert_close(learner.seen["rewards"][ended], last + 9 * absorbing)  # 0.9 + 0.81 + ... = 9
    obs, actions = (learner.seen[name][~ended] for name in ("obs", "actions"))
    others = gail_reward(lane.discriminator.logits(torch.cat([obs, torch.zeros(len(obs), 1)], 1), actions))
    torch.testing.assert_close(learner.seen["rewards"][~ended], others)
    assert len(lane.rows.policy["obs"]) == 16 + int(ended.sum())
