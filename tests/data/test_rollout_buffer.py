"""RolloutBuffer serves each row once an epoch; generalized advantages stop where episodes do."""

import pytest
import torch
from torch import Tensor

from rl_training.data import RolloutBuffer, generalized_advantages
from rl_training.data.replay.rollout_buffer import _scanned, decayed_sums


def test_steps_are_stacked_over_time():
    buffer = RolloutBuffer()
    for step in range(3):
        buffer.append({"obs": torch.full((2, 4), float(step)), "rewards": torch.tensor([step, -step])})
    stacked = buffer.stack()
    assert stacked["obs"].shape == (3, 2, 4)
    assert stacked["rewards"].tolist() == [[0, 0], [1, -1], [2, -2]]


def test_every_row_is_served_once_an_epoch_in_a_new_order():
    buffer = RolloutBuffer()
    buffer.fill({"rewards": torch.arange(12)})
    epochs = [torch.cat([buffer.sample(4)["rewards"] for _ in range(3)]) for _ in range(2)]
    assert [sorted(epoch.tolist()) for epoch in epochs] == [list(range(12))] * 2
    assert not torch.equal(*epochs)


def test_a_new_rollout_starts_a_new_epoch():
    buffer = RolloutBuffer()
    buffer.fill({"rewards": torch.arange(4)})
    buffer.sample(2)
    buffer.fill({"rewards": torch.arange(10, 14)})
    assert sorted(torch.cat([buffer.sample(2)["rewards"] for _ in range(2)]).tolist()) == [10, 11, 12, 13]


def test_a_batch_size_that_does_not_divide_the_rollout_is_rejected():
    buffer = RolloutBuffer()
    buffer.fill({"rewards": torch.arange(10)})
    with pytest.raises(ValueError, match="batch_size must divide the 10 rows of the rollout, got 4"):
        buffer.sample(4)


def test_a_rollout_refuses_members():
    buffer = RolloutBuffer()
    buffer.fill({"rewards": torch.arange(10)})
    with pytest.raises(ValueError, match="serves one learner"):
        buffer.sample(5, members=(2,))


def test_a_cleared_rollout_has_nothing_to_stack_or_serve():
    buffer = RolloutBuffer()
    buffer.append({"rewards": torch.zeros(1)})
    buffer.fill({"rewards": torch.arange(2)})
    buffer.clear()
    with pytest.raises(ValueError, match="no steps"):
        buffer.stack()
    with pytest.raises(ValueError, match="the 0 rows"):
        buffer.sample(1)


def test_the_order_comes_from_the_buffers_own_generator_and_its_state():
    first, second = RolloutBuffer(), RolloutBuffer()
    first.seed(5)
    second.load_state_dict(first.state_dict())
    before = torch.get_rng_state()
    for buffer in (first, second):
        buffer.fill({"rewards": torch.arange(100)})
    assert torch.equal(first.sample(50)["rewards"], second.sample(50)["rewards"])
    assert torch.equal(torch.get_rng_state(), before)


# gamma 0.5, lambda 0.5, so deltas decay by 0.25; all values are 2, all rewards 1.
@pytest.mark.parametrize(
    ("dones", "truncated", "expected"),
    [
        ([0, 0], [0, 0], [0.0, 0.0]),  # 1 + 0.5 * 2 - 2 = 0 twice
        ([0, 1], [0, 0], [-0.25, -1.0]),  # terminal: 1 - 2, and a quarter of it one step back
        ([1, 0], [0, 0], [-1.0, 0.0]),
        ([0, 1], [0, 1], [-0.25, -1.0]),  # terminated at the time limit counts as terminated
    ],
)
def test_advantages_by_hand(dones, truncated, expected):
    flags = torch.tensor([dones, truncated], dtype=torch.float32)
    two = torch.full((2,), 2.0)
    advantages = generalized_advantages(torch.ones(2), two, two, *flags, gamma=0.5, gae_lambda=0.5)
    assert advantages.tolist() == expected


# Row 0 is cut where the value is 4: 1 + 0.5 * 4 - 2 = 1. Row 1 is of another episode: 9 + 0.5 * 2 - 2 = 8.
def test_a_time_limit_is_bootstrapped_but_carries_no_advantage_back():
    rewards, values, next_values = torch.tensor([1.0, 9.0]), torch.full((2,), 2.0), torch.tensor([4.0, 2.0])
    zeros, truncated = torch.zeros(2), torch.tensor([1.0, 0.0])
    advantages = generalized_advantages(rewards, values, next_values, zeros, truncated, gamma=0.5, gae_lambda=0.5)
    assert advantages.tolist() == [1, 8]


def advantages_by_definition(rewards, values, next_values, dones, truncated, gamma, gae_lambda) -> Tensor:
    """sum_k (gamma lambda)^k delta_(t+k), up to and with the first row that ends the episode."""
    result = torch.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        for start in range(len(rewards)):
            for t in range(start, len(rewards)):
                future = 0.0 if dones[t, env] else gamma * next_values[t, env]
                delta = rewards[t, env] + future - values[t, env]
                result[start, env] += (gamma * gae_lambda) ** (t - start) * delta
                if dones[t, env] or truncated[t, env]:
                    break
    return result


def test_advantages_agree_with_their_definition_on_random_episodes():
    generator = torch.Generator().manual_seed(0)
    rewards, values, next_values = torch.randn(3, 20, 4, generator=generator)
    dones, truncated = (torch.rand(2, 20, 4, generator=generator) < 0.25).float()  # both are set in some rows
    assert (dones * truncated).any()
    inputs = (rewards, values, next_values, dones, truncated)
    expected = advantages_by_definition(*inputs, 0.97, 0.9)
    assert torch.allclose(generalized_advantages(*inputs, gamma=0.97, gae_lambda=0.9), expected, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 5, 32, 33])
def test_sums_by_doubling_equal_sums_in_order(steps):
    generator = torch.Generator().manual_seed(0)
    values, decay = torch.rand(2, steps, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(_scanned(values, decay), decayed_sums(values, decay), rtol=0, atol=1e-12)


def test_skipped_batches_advance_the_position_as_sampled_ones_do():
    sampled, skipped = RolloutBuffer(), RolloutBuffer()
    for buffer in (sampled, skipped):
        buffer.fill({"x": torch.arange(12)})
    positions = []
    for count in (1, 2, 4, 1):
        for _ in range(count):
            sampled.sample(4)
        skipped.skip(count, 4)
        positions.append(sampled.position)
        assert skipped.position == sampled.position
    assert positions == [4, 12, 4, 8]
