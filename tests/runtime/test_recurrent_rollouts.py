"""Rollouts of a policy with memory: its state goes on between rollouts, checkpoints and calls of `predict`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import PPO, Memory, streams
from rl_training.algorithms import PPOAlgorithm, PPOConfig
from rl_training.data import RolloutBuffer
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.export.observations import observe
from rl_training.experiment.export.parity import Comparison
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.runtime.lanes import Actor, RolloutLane
from rl_training.runtime.lanes.captured_steps import CapturedSteps, stacked_steps
from rl_training.types import Batch

NETWORK = {"memory": "lstm", "memory_size": 6, "hidden_sizes": [8]}


def new_lane(memory: str = "lstm", **options: Any) -> RolloutLane:
    config = PPOConfig(num_steps=16, batch_size=16, sequence_length=8, network={**NETWORK, "memory": memory}, **options)
    pool = EnvPool("CartPoleNoVelocity-v1", 2, seed=3)
    torch.manual_seed(0)
    learner = PPOAlgorithm.build(pool.spec, config)
    actor = Actor(learner, pool, streams.generator(0, "exploration"), torch.device("cpu"))
    buffer = RolloutBuffer(steps_per_row=config.steps_per_row)
    buffer.seed(1)
    return RolloutLane(learner, actor, buffer, config)


def served(lane: RolloutLane) -> list[Batch]:
    """All minibatches of an epoch."""
    return [lane.source.sample(16) for _ in range(2)]


def assert_equal(mine: list[Batch], others: list[Batch]) -> None:
    for one, other in zip(mine, others, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].equal(other[name]) for name in one)


def test_minibatches_hold_whole_sequences_and_batch_sizes_count_steps():
    lane = new_lane()
    lane.collect(1)
    assert lane.due() == 10 * 2  # two minibatches of 16 steps in each epoch
    for batch in served(lane):
        assert batch["obs"].shape == (2, 8, 2)
        assert batch["memory_is_first"].shape == (2, 8)
        assert batch["memory_hidden"].shape == (2, 12)


def test_episodes_that_go_on_keep_their_memory_in_the_next_rollout():
    lane = new_lane()
    lane.collect(1)
    rows = lane.actor.memory.rows
    assert rows is not None
    before = {name: column.clone() for name, column in rows.items()}
    assert before["hidden"].abs().sum() > 0
    lane.collect(1)
    first = lane.source._flat  # the first rows are the first sequences of both environments
    for name in ("hidden", "cell"):
        assert first[f"memory_{name}"][:2].equal(before[name])
    assert first["memory_is_first"][:2, 0].equal(before["is_first"])


def test_the_first_step_of_an_episode_is_marked():
    lane = new_lane()
    for _ in range(4):
        lane.collect(1)
    rollout = lane.source.stack()
    ends = rollout["dones"] + rollout["truncated"]
    assert ends.sum() > 0
    assert rollout["memory_is_first"][1:].equal(ends[:-1])


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_rollout_that_was_cut_goes_on_with_its_memory(memory):
    whole, cut, resumed = (new_lane(memory) for _ in range(3))
    whole.collect(1)
    cut.stop_by = 0.0
    assert cut.collect(1).cut
    assert len(cut.source) == 1
    resumed.load_state_dict(cut.state_dict())
    resumed.collect(1)
    assert_equal(served(resumed), served(whole))


def test_environments_that_start_anew_start_with_an_empty_memory():
    lane, other = new_lane(), new_lane()
    lane.collect(1)
    state = lane.state_dict()
    state["actor"]["envs"]["envs"]["0"]["kind"] = "of another kind"
    assert other.load_state_dict(state)
    other.collect(1)
    rollout = other.source.stack()
    assert rollout["memory_is_first"][0].tolist() == [1.0, 1.0]
    assert rollout["memory_hidden"][0].abs().sum() == 0


def test_steps_for_a_graph_equal_single_steps():
    plain, captured = new_lane(), new_lane()
    steps = CapturedSteps(captured.actor, partial(stacked_steps, captured.actor, 16))
    for _ in range(3):
        with torch.no_grad():
            assert_equal([steps()], [stacked_steps(plain.actor, 16)])


def test_predict_carries_the_memory_of_an_episode(tmp_path):
    options: dict[str, Any] = {"num_steps": 16, "batch_size": 16, "network": NETWORK, "eval_interval": 0}
    agent = PPO("PendulumNoVelocity-v1", total_timesteps=64, output_dir=str(tmp_path / "run"), **options).learn()
    obs, memory = np.random.default_rng(0).normal(size=(9, 3, 2)).astype(np.float32), Memory()
    found = np.stack([agent.predict(each, memory=memory) for each in obs])
    model, rows = agent.agent.learner.model, torch.as_tensor(obs).transpose(0, 1)
    start = {**model.memory.initial(3), "is_first": (torch.arange(9) == 0).float().expand(3, 9)}
    with torch.no_grad():
        expected = 2 * model(rows, start)[0].mean.clamp(-1, 1).transpose(0, 1).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.allclose(found[1:], [agent.predict(each) for each in obs[1:]], atol=1e-5)
    memory.forget(np.array([False, True, False]))
    again = agent.predict(obs[0], memory=memory)
    np.testing.assert_allclose(again[1], found[0, 1], atol=1e-6)  # a new episode
    assert not np.allclose(again[[0, 2]], found[0, [0, 2]], atol=1e-6)


def test_an_exported_policy_is_compared_with_the_memory_of_each_episode(tmp_path):
    options: dict[str, Any] = {"num_steps": 16, "batch_size": 16, "network": NETWORK, "eval_interval": 0}
    options |= {"env_kwargs": {"max_episode_steps": 3}, "output_dir": str(tmp_path / "run")}
    agent = PPO("CartPoleNoVelocity-v1", total_timesteps=16, **options).learn().agent
    policy, firsts = ExportedPolicy(agent.learner, agent.spec), []

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        firsts.append(inputs["memory_is_first"][0].item())
        with torch.no_grad():
            found = policy({name: torch.as_tensor(each) for name, each in inputs.items()})
        return {name: each.numpy() for name, each in found.items()}

    observe(agent, Comparison(agent, run), 7 * 16, None)  # 16 environments
    assert firsts == [1, 0, 0, 1, 0, 0, 1]
