"""Priorities in a loss reach the replay buffer that the batch was sampled from."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rl_training.algorithms import DQNAlgorithm, Updater
from rl_training.data import ReplayBuffer
from rl_training.types import Batch, EnvSpec, Loss, ParameterGroup

SPEC = EnvSpec((1,), "discrete", 2)


class Guess(nn.Module):
    """Guesses all rewards by one number that hardly moves; how far off it is, by row, are the priorities."""

    def __init__(self, *, prioritises: bool = True) -> None:
        super().__init__()
        self.config = SimpleNamespace(batch_size=6)
        self.guess, self.prioritises = nn.Parameter(torch.zeros(())), prioritises

    def forward(self, batch: Batch, phase: str = "loss") -> Loss:
        error = batch["rewards"] - self.guess
        return Loss({"loss": error.square().mean()}, rows={"priorities": error.abs()} if self.prioritises else {})

    def phases(self, update: int) -> tuple[str, ...]:
        return ("loss",)

    def parameter_groups(self) -> list[ParameterGroup]:
        return [ParameterGroup(1e-12)]


def replay_of(rewards, **options):
    members = None if rewards.dim() == 1 else len(rewards)
    replay = ReplayBuffer(rewards.shape[-1], SPEC, members=members, priority_alpha=1.0, **options)
    zeros = torch.zeros(rewards.shape)
    obs = {"obs": zeros.unsqueeze(-1), "next_obs": zeros.unsqueeze(-1)}
    replay.add({**obs, "actions": zeros.long(), "rewards": rewards, "dones": zeros, "truncated": zeros})
    return replay


def test_after_an_update_the_source_draws_by_the_errors_of_its_rows():
    replay = replay_of(torch.tensor([1.0, 2.0, 3.0]), prioritized=True)
    priorities = Updater([Guess()]).run(replay, 1).priorities  # six draws of three equal priorities: each twice
    assert replay.priorities.values[0, :3].tolist() == pytest.approx([1, 2, 3], abs=1e-5)
    torch.testing.assert_close(priorities, torch.tensor([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]))


def test_each_member_of_a_population_tells_of_its_own_rows():
    replay = replay_of(torch.tensor([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]]), prioritized=True)
    guess = Guess()
    Updater([guess, copy.deepcopy(guess)]).run(replay, 2)
    expected = [pytest.approx(own, abs=1e-5) for own in ([1, 2, 3], [6, 5, 4])]
    assert replay.priorities.values[:, 0, :3].tolist() == expected


def test_a_source_that_draws_evenly_is_told_nothing():
    _, count, priorities, _ = Updater([Guess()]).run(replay_of(torch.ones(3)), 2)
    assert count == 2
    torch.testing.assert_close(priorities, torch.ones(6))


def test_a_loss_that_tells_no_priorities_cannot_learn_from_prioritised_rows():
    with pytest.raises(
        ValueError, match=r'prioritised replay needs priorities\. Return them in Loss\.rows\["priorities"\]'
    ):
        Updater([Guess(prioritises=False)]).run(replay_of(torch.ones(3), prioritized=True), 1)


def test_terms_added_to_a_loss_leave_what_it_says_of_rows():
    loss = Loss({"a": torch.zeros(())}, rows={"priorities": torch.ones(2)}, buffers={"b": torch.ones(())})
    assert loss.plus({"c": torch.ones(())}) == Loss({**loss.terms, "c": torch.ones(())}, {}, loss.buffers, loss.rows)


def test_a_target_of_several_steps_is_discounted_by_row():
    torch.manual_seed(0)
    learner = DQNAlgorithm.build(SPEC, hidden_sizes=(4,), gamma=0.9)
    batch = {"obs": torch.zeros(2, 1), "actions": torch.zeros(2).long(), "rewards": torch.tensor([3.0, 3.0]),
             "next_obs": torch.ones(2, 1), "dones": torch.zeros(2), "truncated": torch.zeros(2)}  # fmt: skip
    value = learner.target["q"](batch["next_obs"]).amax(-1)[0].item()
    one, several = (
        learner.loss(each).metrics["target_q_mean"].item()
        for each in (batch, {**batch, "discounts": torch.tensor([0.729, 0.9])})
    )
    assert one == pytest.approx(3 + 0.9 * value)
    assert several == pytest.approx(3 + (0.729 + 0.9) / 2 * value)
