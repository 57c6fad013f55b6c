"""Environments in worker processes: equal trajectories, errors of environments, and what workers can create."""

from __future__ import annotations

import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from rl_training.envs.pools import workers
from rl_training.envs.pools.group import EnvError
from rl_training.envs.pools.pool import EnvPool, Transition


@pytest.fixture(autouse=True)
def _workers_can_import_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))


class Failing(CartPoleEnv):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError("gone")


def rolled(pool: EnvPool, steps: int) -> list[Transition]:
    """Random actions that depend on nothing but the environment's number."""
    pool.reset()
    draws = [np.random.default_rng(env) for env in range(pool.num_envs)]
    return [pool.step(np.array([rng.integers(2) for rng in draws])) for _ in range(steps)]


@pytest.mark.parametrize("cores", [2, 64])  # with 64, processes wait for messages without sleep at first
def test_trajectories_do_not_depend_on_the_number_of_workers(cores, monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
    with EnvPool("CartPole-v1", 4, seed=2) as alone, EnvPool("CartPole-v1", 4, seed=2, workers=2) as spread:
        expected = rolled(alone, 60)
        assert sum(len(step.finished) for step in expected) > 4
        for one, other in zip(expected, rolled(spread, 60), strict=True):
            for column in range(5):
                np.testing.assert_array_equal(one[column], other[column])
            assert one.finished == other.finished
    for num_envs in (1, 2):
        with EnvPool("CartPole-v1", num_envs, seed=2) as fewer:
            for one, other in zip(expected, rolled(fewer, 60), strict=True):
                for column in range(5):
                    np.testing.assert_array_equal(one[column][:num_envs], other[column])


class Threads(CartPoleEnv):
    """The reward is the number of threads for matrix products, 0 if it is not limited."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(os.environ.get("OMP_NUM_THREADS", 0)), *rest


@pytest.mark.parametrize("chosen", [None, "3"])
def test_a_worker_uses_one_thread_unless_the_user_sets_their_number(chosen, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    with EnvPool(Threads, 2, workers=2) as pool:
        pool.reset()
        assert pool.step(np.zeros(2, np.int64)).rewards.tolist() == [float(chosen or 1)] * 2
    assert os.environ.get("OMP_NUM_THREADS") == chosen


@pytest.mark.usefixtures("forked_workers")
def test_a_workers_error_is_raised_with_its_traceback():
    with EnvPool(Failing, 2, workers=2) as pool:
        pool.reset()
        with pytest.raises(
            EnvError, match=r"^environment 0 failed in step: ZeroDivisionError: gone \(\S+:\d+\)$"
        ) as raised:
            pool.step(np.array([0, 0]))
    assert "Traceback" in str(raised.value.__cause__)
    assert multiprocessing.active_children() == []


def test_a_function_that_workers_cannot_import_is_refused():
    with pytest.raises(TypeError, match=r"worker processes cannot create lambda in .*test_workers; move it"):
        EnvPool(lambda: Failing(), 2, workers=2)


@pytest.mark.parametrize(
    ("env_id", "entry_point"),
    [
        ("RegisteredHere-v0", CartPoleEnv),
        ("RegisteredHere-v0", "gymnasium.envs.classic_control:CartPoleEnv"),
        ("RegisteredHere", CartPoleEnv),
    ],
)
def test_workers_know_an_id_that_only_this_process_has_registered(
    env_id: str, entry_point: Any, monkeypatch: pytest.MonkeyPatch
):
    known = EnvSpec("RegisteredHere-v0", entry_point, max_episode_steps=3, kwargs={"sutton_barto_reward": True})
    monkeypatch.setitem(gym.registry, known.id, known)
    with EnvPool(env_id, 2, workers=2) as pool:
        steps = rolled(pool, 3)
    assert [step.rewards.tolist() for step in steps] == [[0.0, 0.0]] * 3  # of the options of the registration
    assert steps[-1].truncated.all()


def test_a_registered_function_that_workers_cannot_import_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(gym.registry, "Lambda-v0", EnvSpec("Lambda-v0", lambda **options: Failing(**options)))
    for env_id in ("Lambda-v0", "Lambda"):
        with pytest.raises(TypeError, match=rf"^worker processes cannot create {env_id}; move it to a module"):
            EnvPool(env_id, 2, workers=2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("forked_workers")
def test_a_step_in_two_parts_equals_a_step(workers: int):
    with EnvPool("CartPole-v1", 2, seed=3, workers=workers) as split, EnvPool("CartPole-v1", 2, seed=3) as whole:
        with pytest.raises(RuntimeError, match="call begin_step"):
            split.end_step()
        split.reset(), whole.reset()
        for _ in range(30):
            split.begin_step(np.array([0, 1]))
            one, other = split.end_step(), whole.step(np.array([0, 1]))
            for column in range(5):
                np.testing.assert_array_equal(one[column], other[column])
            assert one.finished == other.finished


@pytest.mark.usefixtures("forked_workers")
def test_a_pool_is_not_saved_during_a_step():
    with EnvPool("CartPole-v1") as pool:
        pool.reset()
        state = pool.snapshot()
        pool.begin_step(np.array([0]))
        for call in (pool.snapshot, pool.reset, partial(pool.restore, state), partial(pool.begin_step, np.array([0]))):
            with pytest.raises(RuntimeError, match=r"call end_step\(\) before .*: a step of the pool is under way"):
                call()
        pool.end_step()
        pool.snapshot()


class Noise(CartPoleEnv):
    """Random images, some of them the first and the last of an episode."""

    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = type(self).observation_space

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self._image(), {}

    def step(self, action: Any) -> Any:
        _, reward, terminated, truncated, info = super().step(action)
        return self._image(), reward, terminated, truncated, info

    def _image(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (8, 8, 3), np.uint8)


def test_images_of_workers_equal_those_of_this_process():
    with EnvPool(Noise, 3, seed=2) as alone, EnvPool(Noise, 3, seed=2, workers=2) as spread:
        expected, found = rolled(alone, 60), rolled(spread, 60)
    assert sum(len(step.finished) for step in expected) > 3
    for one, other in zip(expected, found, strict=True):  # `found` also keeps its values after later steps
        assert other.next_obs.dtype == np.uint8
        for column in range(5):
            np.testing.assert_array_equal(one[column], other[column])
        assert one.finished == other.finished


class Keeping(CartPoleEnv):
    """Observes the action of the step before."""

    action_space = gym.spaces.Box(-1, 1, (4,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        self.action_space, self.kept = type(self).action_space, np.zeros(4, np.float32)

    def step(self, action: Any) -> Any:
        before, self.kept = self.kept, action
        return before, 0.0, False, False, {}


@pytest.mark.usefixtures("forked_workers")
def test_an_action_that_an_environment_keeps_does_not_change():
    with EnvPool(Keeping, workers=1) as pool:
        pool.reset()
        for value in (0.25, 0.5):
            step = pool.step(np.full((1, 4), value, np.float32))
        assert step.next_obs.tolist() == [[0.25] * 4]


class Tiny(CartPoleEnv):
    """Observes a denormal number."""

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return np.full(4, 1e-30) * np.full(4, 1e-10), *rest


@pytest.mark.parametrize("workers", [0, 1])
def test_training_leaves_the_denormal_numbers_of_environments_as_they_are(workers: int):
    from rl_training.experiment.machine import Choices, apply  # imports torch; every worker imports this file

    apply(Choices("cpu", 1, False))
    with EnvPool(Tiny, workers=workers) as pool:
        pool.reset()
        found = pool.step(np.array([0])).next_obs
        assert not (found + found).any()  # flushed to zero outside the environment
    assert found.view(np.int32).tolist() == [[71362] * 4]  # the bits of 1e-40


def member_pools(workers: int) -> EnvPool:
    return EnvPool("CartPole-v1", 6, seed=(2, 5, 7), workers=workers)


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.usefixtures("forked_workers")
def test_each_member_has_the_trajectories_and_snapshots_of_its_own_pool(workers: int):
    actions = np.random.default_rng(0).integers(0, 2, (2, 40, 6))
    with member_pools(workers) as pool, EnvPool("CartPole-v1", 2, seed=5) as own:
        pool.reset(), own.reset()
        for row in actions[0]:
            together, alone = pool.step(row), own.step(row[2:4])
            for column in range(5):
                np.testing.assert_array_equal(together[column][2:4], alone[column])
            assert [e._replace(env=e.env - 2) for e in together.finished if e.env in (2, 3)] == alone.finished
        saved = pool.snapshot(1)
        assert str(saved) == str(own.snapshot())
        for row in actions[1]:
            pool.step(row)
        assert pool.restore(saved, 1) == []
        for row in actions[1]:
            np.testing.assert_array_equal(pool.step(row).obs[2:4], own.step(row[2:4]).obs)
