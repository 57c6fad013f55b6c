"""No algorithm whose model masks actions chooses an invalid one, and none values it in a target."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import CATALOGUE, BCQAlgorithm
from rl_training.algorithms.bcq import supported_values
from rl_training.types import EnvSpec

ACTIONS = 6
# The mask takes the last places of a packed observation.
SPEC = EnvSpec((2 + ACTIONS,), "discrete", ACTIONS, action_mask=2)
MASKING = [
    name for name, spec in CATALOGUE.items() if getattr(spec.for_actions("discrete").model_type, "takes_masks", False)
]


def masked_obs(rows: int) -> Tensor:
    """Observations in which one to three actions are valid."""
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(rows, ACTIONS, generator=generator).argsort(-1)
    valid = places < torch.randint(1, 4, (rows, 1), generator=generator)
    return torch.cat([torch.randn(rows, 2, generator=generator), valid.float()], -1)


def chosen_are_valid(actions: Tensor, obs: Tensor) -> bool:
    return bool(obs[:, 2:].gather(-1, actions.unsqueeze(-1)).all())


def test_the_algorithms_that_mask_are_those_of_the_docs():
    assert set(MASKING) == {"ppo", "sac", "dqn", "qr_dqn", "iqn", "fqf", "c51", "rainbow", "pqn", "cql", "bcq", "gail"}


@pytest.mark.parametrize("name", MASKING)
@pytest.mark.parametrize("deterministic", [True, False])
def test_every_action_is_valid(name, deterministic):
    kind = CATALOGUE[name].for_actions("discrete")
    exploring: dict[str, Any] = {
        option: 1.0 for option in ("epsilon", "epsilon_start") if option in kind.config_type.model_fields
    }
    torch.manual_seed(0)
    learner = kind.build(SPEC, hidden_sizes=(8,), **exploring)
    obs = masked_obs(400)
    assert chosen_are_valid(learner.act(obs, deterministic=deterministic).actions, obs)


def test_bcq_compares_probabilities_with_that_of_the_likeliest_valid_action():
    learner = BCQAlgorithm.build(SPEC, hidden_sizes=(8,))
    with torch.no_grad():
        learner.model.behaviour.net[-1].bias[0] = 50.0  # the data nearly always has action 0
    obs = masked_obs(200)
    batch = {
        "obs": obs, "next_obs": obs, "actions": torch.zeros(200, dtype=torch.long), "rewards": torch.zeros(200),
        "dones": torch.zeros(200),
    }  # fmt: skip
    assert chosen_are_valid(learner.act(obs, deterministic=True).actions, obs)
    assert learner.target_q(batch).abs().max() < 10


def test_a_threshold_of_zero_supports_every_action():
    values = supported_values(torch.tensor([[1.0, 2.0]]), torch.tensor([[120.0, 0.0]]), 0.0)
    assert values.tolist() == [[1.0, 2.0]]
