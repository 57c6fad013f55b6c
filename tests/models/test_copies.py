"""Hidden layers of the user in critics: each critic has its own weights and random buffers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.algorithms import REDQAlgorithm, SACAlgorithm, TD3Algorithm, Updater
from rl_training.algorithms.core.learner import frozen_subset
from rl_training.types import EnvSpec

SPEC = EnvSpec((3,), "box", 1, action_shape=(1,), action_low=(-1.0,), action_high=(1.0,))


class RandomFeatures(nn.Module):
    role = "trunk"
    frequencies: Tensor
    scale: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(inputs, 8))
        self.register_buffer("scale", torch.full((8,), 2.0))
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear((x @ self.frequencies).cos() * self.scale)


def batch(rows: int = 16) -> dict[str, Tensor]:
    obs, actions = torch.randn(2, rows, 3), torch.rand(rows, 1)
    others = {"rewards": torch.randn(rows), "dones": torch.zeros(rows), "truncated": torch.zeros(rows)}
    return {"obs": obs[0], "next_obs": obs[1], "actions": actions, **others}


@pytest.mark.parametrize("algorithm", [SACAlgorithm, TD3Algorithm, REDQAlgorithm])
def test_each_critic_has_its_own_random_buffers(algorithm):
    learner = algorithm.build(
        SPEC, network=RandomFeatures, **({"num_critics": 4} if algorithm is REDQAlgorithm else {})
    )
    critic, rows = learner.model.critic, torch.randn(5, 4)
    trunk = critic.net[0].net
    assert trunk.frequencies.shape == (critic.copies, 4, 8)
    assert not trunk.frequencies[0].equal(trunk.frequencies[1])
    assert trunk.scale.shape == (8,)  # equal in all critics
    hidden = critic.net[0](rows.expand(critic.copies, 5, 4))
    for copy in range(critic.copies):
        own = {name: each[copy] for name, each in trunk.named_parameters()}
        alone = functional_call(trunk, {**own, "frequencies": trunk.frequencies[copy]}, (rows,))
        torch.testing.assert_close(hidden[copy], alone)
    subset = torch.tensor([critic.copies - 1, 0])
    found = frozen_subset(critic, subset)(rows[:, :3], rows[:, 3:])
    torch.testing.assert_close(found, critic(rows[:, :3], rows[:, 3:])[subset])
    before = trunk.frequencies.clone()
    learner.update(batch())
    learner.update(batch())
    assert trunk.frequencies.equal(before)


def test_a_population_has_the_random_buffers_of_its_members():
    members = [SACAlgorithm.build(SPEC, network=RandomFeatures) for _ in range(2)]
    before = [member.model.critic.net[0].net.frequencies.clone() for member in members]
    Updater(members).update({name: each.expand(2, *each.shape) for name, each in batch().items()})
    assert all(
        member.model.critic.net[0].net.frequencies.equal(own) for member, own in zip(members, before, strict=True)
    )


def test_buffers_that_the_critics_of_an_earlier_version_shared_are_loaded():
    updater = Updater([SACAlgorithm.build(SPEC, network=RandomFeatures)])
    state, shared = updater.state_dict(), torch.randn(4, 8)
    own = [name for name, each in state["buffers"].items() if each.shape == (2, 4, 8)]
    assert len(own) == 2  # of the critics and of their target networks
    updater.load_state_dict({**state, "buffers": {**state["buffers"], **dict.fromkeys(own, shared)}})
    assert all(updater.buffers[name].equal(shared.expand(2, 4, 8)) for name in own)
