"""Bootstrap resamples of episodes."""

from __future__ import annotations

import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.data.datasets.episode_bootstrap import EpisodeBootstrap

LENGTHS = (1, 2, 5, 2)


@pytest.fixture
def dataset() -> TransitionDataset:
    """Four episodes; each row's reward is the number of its episode, its observation the number of the row."""
    rewards = torch.cat([torch.full((length,), float(number)) for number, length in enumerate(LENGTHS)])
    rows = len(rewards)
    obs = torch.arange(float(rows)).unsqueeze(1)
    truncated = torch.zeros(rows)
    truncated[torch.tensor(LENGTHS).cumsum(0) - 1] = 1
    columns = {"obs": obs, "actions": torch.zeros(rows, 1), "rewards": rewards, "next_obs": obs + 1}
    return TransitionDataset({**columns, "dones": torch.zeros(rows), "truncated": truncated})


def test_each_member_samples_its_own_episodes_uniformly(dataset):
    bootstrap = EpisodeBootstrap(dataset, 3, seed=1)
    sampled = bootstrap.sample(20_000, (3,))["obs"].squeeze(-1).long()
    for member, episodes in enumerate(bootstrap.resamples.tolist()):
        lines = torch.cat([torch.arange(10)[dataset.columns["rewards"] == number] for number in episodes])
        expected = torch.bincount(lines, minlength=10) / len(lines)
        seen = torch.bincount(sampled[member], minlength=10) / 20_000
        torch.testing.assert_close(seen, expected, atol=0.02, rtol=0)
        assert seen[expected == 0].sum() == 0


def test_rows_of_a_batch_stay_aligned(dataset):
    batch = EpisodeBootstrap(dataset, 2).sample(64, (2,))
    assert batch["next_obs"].equal(batch["obs"] + 1)


def test_member_means_use_the_resampled_episodes(dataset):
    bootstrap = EpisodeBootstrap(dataset, 2, seed=3)
    values = torch.tensor([[0.0, 1.0, 2.0, 3.0]] * 2)
    assert bootstrap.mean_over_episodes(values).equal(bootstrap.resamples.float().mean(1))


def test_resamples_depend_on_the_seed_alone(dataset):
    same, again, other = (EpisodeBootstrap(dataset, 5, seed=seed).resamples for seed in (0, 0, 1))
    assert same.equal(again)
    assert not same.equal(other)


def test_another_number_of_members_is_rejected(dataset):
    with pytest.raises(ValueError, match="resamples for 2 members"):
        EpisodeBootstrap(dataset, 2).sample(4)
