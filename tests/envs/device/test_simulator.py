"""Simulators that keep their own state: conversion, checks, last observations and exact resume."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.envs.creation.making import make_env
from rl_training.envs.device.registry import make_pool
from rl_training.envs.device.simulator import SimulatorStep, VectorSimulator
from rl_training.envs.device.simulator_pool import SimulatorPool
from rl_training.envs.pools.group import EnvError
from rl_training.envs.spec import spec_of_spaces
from rl_training.types import EnvSpec


class Drift(VectorSimulator):
    """Points on a line, moved by actions in [0, 4]; an episode ends beyond 10, and is truncated after five steps."""

    spec = EnvSpec((2,), "box", 1, action_shape=(1,), action_low=(0.0,), action_high=(4.0,))

    def __init__(self, num_envs: int, gives_last: bool = True) -> None:
        self.num_envs, self.gives_last = num_envs, gives_last
        self.x, self.steps = torch.zeros(num_envs), torch.zeros(num_envs)

    def reset(self, seed: int) -> Tensor:
        self.x.uniform_(generator=torch.Generator().manual_seed(seed))
        self.steps.zero_()
        return self.observe()

    def observe(self) -> Tensor:
        return torch.stack((self.x, self.steps), 1)

    def step(self, actions: Tensor) -> SimulatorStep:
        self.x += actions[:, 0]
        self.steps += 1
        last, terminated, truncated = self.observe(), self.x > 10, self.steps >= 5
        ended = terminated | truncated
        self.x[ended] = self.steps[ended] = 0
        return SimulatorStep(self.observe(), last[:, 0], terminated, truncated, last if self.gives_last else None)


class Saved(Drift):
    def state(self) -> dict[str, Any]:
        return {"x": self.x.clone(), "steps": self.steps.clone()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.x.copy_(state["x"])
        self.steps.copy_(state["steps"])


def pool_of(simulator: VectorSimulator, seed: int = 0) -> SimulatorPool:
    pool = SimulatorPool(simulator, seed=seed)
    pool.reset()
    return pool


def test_actions_arrive_in_the_units_of_the_spec():
    pool = pool_of(Drift(3))
    before = pool.obs.clone()
    step = pool.step(torch.tensor([[-1.0], [0.5], [9.0]]))  # the last is clipped
    assert (step.obs - before)[:, 0].tolist() == pytest.approx([0, 3, 4])


def test_last_observations_are_the_episodes_own_and_a_termination_is_no_truncation():
    pool = pool_of(Drift(2))
    steps = [pool.step(torch.tensor([[-1.0], [0.0]])) for _ in range(5)]
    assert [step.truncated.tolist() for step in steps] == [[False, False]] * 4 + [[True, False]]
    assert steps[-1].terminated.tolist() == [False, True]  # both its limit and its end
    assert steps[-1].next_obs[:, 1].tolist() == [5, 5]
    assert steps[-1].obs.tolist() == [[0, 0], [0, 0]]
    assert pool.take_finished()[::2] == (2, 10)


def test_without_last_observations_a_truncation_is_a_termination():
    pool = pool_of(Drift(2, gives_last=False))
    step = [pool.step(torch.full((2, 1), -1.0)) for _ in range(5)][-1]
    assert (bool(step.terminated.all()), bool(step.truncated.any())) == (True, False)


def test_a_simulator_with_state_is_restored_exactly():
    whole, other = pool_of(Saved(4), seed=1), pool_of(Saved(4), seed=1)
    for _ in range(7):
        whole.step(torch.zeros(4, 1))
    assert other.restore(whole.snapshot()) == []
    for _ in range(7):
        one, two = whole.step(torch.zeros(4, 1)), other.step(torch.zeros(4, 1))
        assert all(torch.equal(a, b) for a, b in zip(one[:-1], two[:-1], strict=True))
    assert whole.take_finished() == other.take_finished()


def test_a_simulator_without_state_starts_new_episodes():
    pool, other = pool_of(Drift(4)), pool_of(Drift(4))
    first = pool.obs.clone()
    pool.step(torch.zeros(4, 1))
    assert other.restore(pool.snapshot()) == [
        "Drift has no state() to save, so its environments start new episodes"
    ]  # fmt: skip
    assert not torch.equal(other.obs, first)
    assert other.obs[:, 1].tolist() == [0] * 4


class Arrays(Drift):
    """Hands out arrays by DLPack, in place of tensors."""

    def reset(self, seed: int) -> Any:
        return super().reset(seed).numpy()

    def step(self, actions: Tensor) -> SimulatorStep:
        step = super().step(actions)
        terminated, truncated = (each.numpy().astype(np.uint8) for each in (step.terminated, step.truncated))
        return SimulatorStep(step.obs.numpy(), step.rewards.numpy(), terminated, truncated, step.final_obs.numpy())


def test_arrays_are_taken_by_dlpack():
    tensors, arrays = pool_of(Drift(3)), pool_of(Arrays(3))
    for _ in range(12):
        one, two = tensors.step(torch.ones(3, 1)), arrays.step(torch.ones(3, 1))
        assert all(torch.equal(a, b) for a, b in zip(one[:-1], two[:-1], strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": torch.zeros(3, 5)}, r"Drift.step returned observations of shape \(3, 5\), expected \(3, 2\)"),
        ({"obs": torch.zeros(3, 2).double()}, "observations of dtype float64, but its spec has float32; convert them"),
        ({"obs": torch.zeros(3, 2, device="meta")}, "returned observations on meta, but the run is on cpu"),
        ({"obs": torch.full((3, 2), torch.nan)}, "Drift.step or reset returned a NaN or infinite observation"),
        ({"rewards": torch.full((3,), torch.inf)}, "NaN or infinite observation or reward; return finite numbers"),
        ({"rewards": [1.0, 2.0, 3.0]}, "returned rewards of type list; return a tensor or an array with DLPack"),
        ({"terminated": torch.zeros(3)}, "returned terminated of dtype float32; return bool"),
        ({"final_obs": torch.zeros(1, 2)}, r"returned final_obs of shape \(1, 2\), expected \(3, 2\)"),
    ],
)
def test_wrong_values_end_the_run_with_one_sentence(changes, message, monkeypatch):
    pool = pool_of(Drift(3))
    step = Drift.step
    monkeypatch.setattr(Drift, "step", lambda self, actions: step(self, actions)._replace(**changes))
    with pytest.raises(EnvError, match=message):
        pool.step(torch.zeros(3, 1))


def test_an_error_of_the_simulator_names_its_line(monkeypatch):
    pool = pool_of(Drift(3))
    monkeypatch.setattr(Drift, "observe", lambda self: 1 / 0)
    with pytest.raises(EnvError, match=r"Drift.step failed: ZeroDivisionError"):
        pool.step(torch.zeros(3, 1))


def test_num_envs_is_passed_to_the_function_and_must_be_kept():
    pool = make_pool(lambda num_envs: Drift(num_envs), {}, 6, seed=0, device="cpu")
    assert (pool.num_envs, pool.on_device, pool.capturable) == (6, True, False)
    with pytest.raises(ValueError, match="has 2 environments, but num_envs is 6; set one to the other"):
        make_pool(lambda: Drift(2), {}, 6, seed=0, device="cpu")
    spec = EnvSpec((1,), "box", 1, action_shape=(1,), action_low=(-np.inf,), action_high=(np.inf,))
    unbounded = Drift(2)
    unbounded.spec = spec
    with pytest.raises(ValueError, match="Drift has infinite action bounds; give finite ones in its spec"):
        SimulatorPool(unbounded)


def test_one_environment_plays_as_a_gymnasium_environment():
    env = make_env(Drift)  # type: ignore[arg-type]
    first, _ = env.reset(seed=3)
    assert np.array_equal(first, env.reset(seed=3)[0])
    assert not np.array_equal(first, env.reset()[0])
    steps = [env.step(np.array([0.5], np.float32)) for _ in range(5)]
    assert [step[3] for step in steps] == [False] * 4 + [True]
    assert steps[-1][0][1] == 5


def test_a_spec_is_made_of_the_spaces_of_one_environment():
    box = gym.spaces.Box(-1, 3, (2,), np.float32)
    assert spec_of_spaces(box, box) == EnvSpec((2,), "box", 2, "float32", (2,), (-1.0, -1.0), (3.0, 3.0))
    with pytest.raises(TypeError, match=r"needs Box observations and .*, got Dict and Box"):
        spec_of_spaces(gym.spaces.Dict({"policy": box}), box)
