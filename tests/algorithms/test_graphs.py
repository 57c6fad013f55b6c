"""Captured updates are the eager ones, replayed; they need a GPU."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms import CATALOGUE, Learner, Updater
from rl_training.data import ReplayBuffer
from rl_training.types import EnvSpec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="captured updates need CUDA")
SPECS = {
    "box": EnvSpec((5,), "box", 2, action_shape=(2,), action_low=(-1.0, -1.0), action_high=(1.0, 1.0)),
    "discrete": EnvSpec((5,), "discrete", 3),
}
LEARNERS = [learner for learner in CATALOGUE.values() if learner.lane != "rollout"]


def ring(spec: EnvSpec, members: int | None, **options) -> ReplayBuffer:
    buffer = ReplayBuffer(64, spec, device="cuda", members=members, **options)
    generator = torch.Generator().manual_seed(0)
    lead = (50,) if members is None else (members, 50)
    actions = (
        torch.rand(*lead, spec.action_dim, generator=generator) * 1.8 - 0.9
        if spec.action_kind == "box"
        else torch.randint(spec.action_dim, lead, generator=generator)
    )
    obs, next_obs = torch.randn(2, *lead, 5, generator=generator)
    rows = {"obs": obs, "actions": actions, "rewards": torch.randn(*lead, generator=generator), "next_obs": next_obs}
    rows |= {"dones": torch.zeros(lead), "truncated": torch.zeros(lead)}
    buffer.add({name: column.cuda() for name, column in rows.items()})
    buffer.seed(1)
    return buffer


def trained(learner: type[Learner], members: int, *, capture: bool, **options) -> dict[str, torch.Tensor]:
    spec = SPECS[learner.action_kinds[0]]
    torch.manual_seed(3)
    learners = [learner.build(spec, hidden_sizes=(16, 16), batch_size=8).cuda() for _ in range(members)]
    updater = Updater(learners, capture=capture)
    torch.cuda.manual_seed(7)
    source = ring(spec, None if members == 1 else members, **options)
    updater.run(source, 75)
    source.add({name: column[..., :1, :] if column.dim() > len(source.columns["rewards"].shape) else column[..., :1]
                for name, column in source.columns.items()})  # fmt: skip
    result = updater.run(source, 5)  # the ring has grown, and captured draws must see it
    assert updater.updates == 80
    assert all(value.isfinite().all() for value in result.metrics.values())
    return {name: value.detach().cpu() for name, value in updater.params.items()}


@pytest.mark.parametrize("members", [1, 3])
def test_captured_updates_look_ahead_and_set_priorities_as_eager_ones_do(members):
    options = {"n_step": 3, "prioritized": True}
    eager, captured = (trained(CATALOGUE["dqn"], members, capture=capture, **options) for capture in (False, True))
    assert max((value - captured[name]).abs().max().item() for name, value in eager.items()) < 1e-4


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_captured_updates_equal_eager_ones(learner, members):
    eager, captured = (trained(learner, members, capture=capture) for capture in (False, True))
    furthest = {name: (value - captured[name]).abs().max().item() for name, value in eager.items()}
    assert max(furthest.values()) < 1e-4, furthest
