"""What every learner of the catalogue must do, whatever it minimises."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms import Learner
from rl_training.data import RecurrentReplayBuffer
from rl_training.runtime.lanes.sequence import stored_memory
from rl_training.runtime.memory import Memory
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import Batch


def build(case, seed=0) -> Learner:
    torch.manual_seed(seed)
    options = {"size": "tiny", "horizon": 3} if case.learner.lane == "sequence" else {}
    return case.learner.build(case.spec, batch_size=16, hidden_sizes=(8, 8), **options)


def batch_for(case, learner: Learner, rows=16) -> Batch:
    """Random rows as the learner's lane would hand them out."""
    spec, generator = case.spec, torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, rows, *spec.obs_shape, generator=generator)
    actions = RandomPolicy(spec).act(obs, generator=generator).actions
    actions = 0.9 * actions if case.kind == "box" else actions
    rewards, dones = torch.randn(rows, generator=generator), (torch.arange(rows) % 5 == 0).float()
    batch = {"obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs, "dones": dones}
    batch["truncated"] = torch.zeros(rows)
    batch |= {column.name: torch.randn(rows, *column.shape, generator=generator) for column in learner.needs}
    if learner.lane == "sequence":
        return windows_of(case, learner, batch)
    if learner.lane != "rollout":
        return learner.prepare(batch)
    with torch.no_grad():
        extras = learner.act(obs, generator=generator).extras
    prepared = learner.prepare({name: column.unsqueeze(1) for name, column in {**batch, **extras}.items()})
    return {name: column.flatten(0, 1) for name, column in prepared.items()}


def windows_of(case, learner: Learner, batch: Batch) -> Batch:
    """The rows as steps of one environment, and the windows in which they come back."""
    latents, memory = stored_memory(learner), Memory()
    replay = RecurrentReplayBuffer(100, case.spec, window=5, latents=latents)
    for row in range(len(batch["obs"])):
        step = {name: column[row : row + 1] for name, column in batch.items()}
        memory.keep(learner.act(step["obs"], memory.rows), step["dones"])
        replay.add({**step, **{name: rows for name, rows in (memory.rows or {}).items() if name in latents}})
    return replay.sample(16)


def test_updates_move_every_trained_tensor_and_keep_metrics_finite(case):
    learner = build(case)
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}
    batch = batch_for(case, learner)
    updates = max(3, getattr(learner.config, "policy_delay", 1))  # the actor's among them
    results = [learner.update(batch, global_step=step) for step in range(updates)]
    unmoved = [name for name, value in learner.named_parameters() if value.requires_grad and value.equal(before[name])]
    assert unmoved == []
    assert all(value.isfinite().all() for result in results for value in result.metrics.values())
    assert results[-1].num_gradient_steps == 1


def test_state_round_trips_into_another_learner(case, goes_on_alike):
    learner, other = build(case), build(case, seed=7)
    goes_on_alike(learner, other, batch_for(case, learner))


def test_actions_stay_in_bounds(case):
    learner = build(case)
    actions = learner.act(100 * torch.randn(64, *case.spec.obs_shape)).actions
    if case.kind == "box":
        assert actions.shape == (64, case.spec.action_dim)
        assert actions.abs().max() <= 1
        return
    assert actions.shape == ((64,) if case.kind == "discrete" else (64, case.spec.action_dim))
    sizes = case.spec.action_sizes or (case.spec.action_dim,)
    for choices, size in zip(actions.view(64, -1).unbind(1), sizes, strict=True):
        assert set(choices.tolist()) <= set(range(size))


def test_deterministic_actions_repeat_and_draw_nothing(case):
    learner, obs = build(case), torch.randn(8, *case.spec.obs_shape)
    noise = torch.get_rng_state()
    assert learner.act(obs, deterministic=True).actions.equal(learner.act(obs, deterministic=True).actions)
    assert torch.get_rng_state().equal(noise)


def test_exploration_draws_from_its_own_generator_alone(case):
    learner, obs = build(case), torch.randn(8, *case.spec.obs_shape)
    noise = torch.get_rng_state()
    draws = [learner.act(obs, generator=torch.Generator().manual_seed(3)).actions for _ in range(2)]
    assert draws[0].equal(draws[1])
    assert torch.get_rng_state().equal(noise)


def test_targets_start_as_copies_and_are_not_trained(case):
    learner = build(case)
    for part in learner.targets:
        copied = dict(learner.target[part].named_parameters())
        assert all(value.equal(copied[name]) for name, value in getattr(learner.model, part).named_parameters())
        assert not any(value.requires_grad for value in copied.values())


@pytest.mark.parametrize("option", ["learning_rate", "batch_size"])
def test_a_bad_option_is_refused_by_name(case, option):
    with pytest.raises(ValueError, match=option):
        case.learner.config_type(**{option: 0})


def test_a_misspelt_option_is_refused(case):
    with pytest.raises(ValueError, match="learning_rat"):
        case.learner.config_type(learning_rat=0.1)
