"""The pool of device environments: the contract of the pool of processes, with tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rl_training.envs.device.classic import Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum
from rl_training.envs.device.contract import TensorTransition
from rl_training.envs.device.group import DevicePoolGroup
from rl_training.envs.device.minatar import Breakout, Freeway
from rl_training.envs.device.pool import DevicePool

ENVS = [CartPole(), Pendulum(), Acrobot(), MountainCar(), MountainCarContinuous(), Breakout(), Freeway()]


def name_of(env: object) -> str:
    return type(env).__name__


def actions(pool: DevicePool, generator: torch.Generator) -> Tensor:
    if pool.spec.action_kind == "discrete":
        return torch.randint(pool.spec.action_dim, (pool.num_envs,), generator=generator)
    return torch.rand(pool.num_envs, 1, generator=generator) * 2 - 1


def played(pool: DevicePool, steps: int, seed: int = 0) -> list[TensorTransition]:
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for _ in range(steps):
        step = pool.step(actions(pool, generator))
        kept.append(step._replace(obs=step.obs.clone()))  # the next step overwrites it
    return kept


def equal(a: list[TensorTransition], b: list[TensorTransition]) -> bool:
    return all(
        torch.equal(x, y) for one, two in zip(a, b, strict=True) for x, y in zip(one[:-1], two[:-1], strict=True)
    )


@pytest.mark.parametrize("env", ENVS, ids=name_of)
def test_observations_have_the_form_of_the_spec(env):
    pool = DevicePool(env, 3)
    first, (step,) = pool.reset().clone(), played(pool, 1)
    for obs in (first, step.next_obs, step.obs):
        assert (tuple(obs.shape), str(obs.dtype)) == ((3, *env.spec.obs_shape), f"torch.{env.spec.obs_dtype}")
    assert (step.rewards.dtype, step.terminated.dtype, step.truncated.dtype) == (
        torch.float32, torch.bool, torch.bool
    )  # fmt: skip


def test_an_ended_episode_keeps_its_last_observation_and_starts_anew():
    pool = DevicePool(CartPole(), 16, seed=1)
    before = pool.reset().clone()
    for step in played(pool, 60):
        ended = step.terminated | step.truncated
        assert torch.equal(step.obs[~ended], step.next_obs[~ended])
        assert bool((step.obs[ended].abs() < 0.05).all())  # a first observation
        fallen = (step.next_obs[:, 0].abs() > 2.4) | (step.next_obs[:, 2].abs() > 12 * 2 * torch.pi / 360)
        assert torch.equal(fallen, step.terminated)
        assert not torch.equal(step.next_obs, before)
        before = step.next_obs


def test_the_time_limit_truncates_and_never_together_with_a_termination():
    pool = DevicePool(Pendulum(), 2)
    pool.reset()
    steps = played(pool, 401)
    cut = [number for number, step in enumerate(steps, 1) if bool(step.truncated.any())]
    assert cut == [200, 400]
    assert not any(bool((step.truncated & step.terminated).any()) for step in steps)


def test_finished_episodes_are_summed():
    pool = DevicePool(CartPole(), 32, seed=2)
    pool.reset()
    steps = played(pool, 100)
    ended = torch.stack([step.terminated | step.truncated for step in steps])
    finished = pool.take_finished()
    assert finished.episodes == int(ended.sum()) > 100
    assert finished.returns == finished.lengths  # a reward of 1 for each step
    started = [int(ended[:, row].nonzero().max()) + 1 if bool(ended[:, row].any()) else 0 for row in range(32)]
    assert finished.lengths == sum(started)
    assert pool.take_finished() == (0, 0.0, 0.0)


@pytest.mark.parametrize("env", ENVS, ids=name_of)
def test_a_restored_pool_continues_exactly(env):
    whole, other = DevicePool(env, 5, seed=3), DevicePool(env, 5, seed=3)
    whole.reset()
    played(whole, 40)
    saved = whole.snapshot()
    rest = played(whole, 260, seed=9)
    assert other.restore(saved) == []
    assert torch.equal(other.obs, saved["tensors"]["obs"])
    assert equal(played(other, 260, seed=9), rest)
    assert other.take_finished() == whole.take_finished()


@pytest.mark.parametrize("env", [CartPole(), Breakout()], ids=name_of)
def test_an_environment_does_not_depend_on_the_number_of_others(env):
    few, many = DevicePool(env, 2, seed=4), DevicePool(env, 8, seed=4)
    assert torch.equal(many.reset()[:2], few.reset())
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        chosen = actions(many, generator)
        a, b = many.step(chosen), few.step(chosen[:2])
        assert all(torch.equal(x[:2], y) for x, y in zip(a[:-1], b[:-1], strict=True))


def test_seeds_and_episodes_start_differently():
    first, second = (DevicePool(CartPole(), 4, seed=seed) for seed in (0, 1))
    start = first.reset().clone()
    assert not torch.equal(start, second.reset())
    assert not torch.equal(start, first.reset())


def test_a_snapshot_of_another_pool_is_refused():
    pool = DevicePool(CartPole(), 4)
    pool.reset()
    with pytest.raises(ValueError, match="has 4 environments with seed 0, but this pool has 3 with seed 0"):
        DevicePool(CartPole(), 3).restore(pool.snapshot())
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        DevicePool(CartPole(), 3).step(torch.zeros(3))


@pytest.mark.parametrize("env", [CartPole(), Pendulum(), Breakout()], ids=name_of)
def test_pools_of_a_group_do_as_they_do_alone(env):
    alone, members = ([DevicePool(env, 3, seed=seed) for seed in (5, 6)] for _ in range(2))
    group = DevicePoolGroup(members)
    assert torch.equal(group.reset(), torch.stack([pool.reset() for pool in alone]))
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    for _ in range(250):
        chosen = [actions(pool, generator) for pool, generator in zip(alone, generators, strict=True)]
        step, expected = group.step(torch.stack(chosen)), [pool.step(a) for pool, a in zip(alone, chosen, strict=True)]
        for together, *each in zip(step[:-1], *(one[:-1] for one in expected), strict=True):
            assert torch.equal(together, torch.stack(each))
    assert [pool.take_finished() for pool in members] == [pool.take_finished() for pool in alone]
    for pool, other in zip(members, alone, strict=True):
        assert pool.restore(other.snapshot()) == []
    assert torch.equal(group.obs, torch.stack([pool.obs for pool in alone]))


def test_a_snapshot_of_an_older_version_is_restored():
    pool, other = (DevicePool(CartPole(), 4) for _ in range(2))
    pool.reset()
    played(pool, 50)
    saved = pool.snapshot()
    saved["tensors"]["finished"] = saved["tensors"]["finished"].sum(0)
    other.restore(saved)
    assert other.take_finished() == pool.take_finished()
