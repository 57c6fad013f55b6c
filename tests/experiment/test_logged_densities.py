"""Logged densities keep the units of their actions where a dataset is split, thinned out, mixed or saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training import TransitionDataset, load_transition_dataset, mix_transition_datasets, save_transition_dataset
from rl_training.experiment.ope.probabilities import behaviour_log_probs
from rl_training.types import EnvSpec

SPEC = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-2.0,), action_high=(2.0,))
ROWS, LENGTH = 12, 3
PARTS = {
    "split": lambda data, _: data.split(0.5).test,
    "weighted split": lambda data, _: mix_transition_datasets([data, data], [1, 3]).split(0.5).test,
    "subsample": lambda data, _: data.subsample(episodes=2),
    "mixture": lambda data, _: mix_transition_datasets([data, data]),
    "mixture with another range": lambda data, _: mix_transition_datasets([data, recorded((0, 5), data)]),
    "npz": lambda data, folder: saved(data, folder / "saved.npz"),
    "parquet": lambda data, folder: saved(data, folder / "saved.parquet"),
    "saved part": lambda data, folder: saved(data.split(0.5).train, folder / "saved.npz"),
}


def recorded(bounds: tuple[float, float], like: TransitionDataset | None = None, name: str = "") -> TransitionDataset:
    """Uniform actions in these bounds, with their density."""
    name = name or next(each for each in like.columns if each.startswith("action_"))  # type: ignore[union-attr]
    density = np.full(ROWS, 1 / (bounds[1] - bounds[0]))
    obs = np.arange(ROWS, dtype=np.float32)[:, None]
    columns = {
        "obs": obs,
        "next_obs": obs + 1,
        "rewards": np.ones(ROWS),
        "dones": np.arange(ROWS) % LENGTH == LENGTH - 1,
    }
    columns |= {"actions": np.linspace(*bounds, ROWS)[:, None], "truncated": np.zeros(ROWS)}
    columns |= {name: density if name == "action_prob" else np.log(density)}
    return TransitionDataset.from_dict(columns, spec=SPEC, action_range=bounds)


def saved(data: TransitionDataset, path) -> TransitionDataset:
    save_transition_dataset(data, path)
    return load_transition_dataset(path)


@pytest.mark.parametrize("name", ["action_logprob", "action_prob"])
@pytest.mark.parametrize("part", PARTS)
def test_parts_and_copies_have_the_densities_of_their_source(tmp_path, part, name):
    source = recorded((0, 10), name=name)
    found = behaviour_log_probs(PARTS[part](source, tmp_path), seed=0).log_probs
    torch.testing.assert_close(behaviour_log_probs(source, seed=0).log_probs.exp(), torch.full((ROWS,), 0.5).double())
    torch.testing.assert_close(found.exp(), torch.full_like(found, 0.5), rtol=1e-5, atol=0)
