"""A restored environment continues exactly like an uninterrupted one."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation

from rl_training.envs import snapshots
from rl_training.envs.pools.pool import EnvPool, Transition

CLASSIC = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"]
PACKAGED = ["FixedHorizonCartPole-v0", "Catch-v0", "CueMemory-v0", "CartPoleNoVelocity-v1", "PendulumNoVelocity-v1",
            "PointGoal-v0", "BitFlip-v0"]  # fmt: skip
MUJOCO = sorted(name for name, spec in gym.registry.items() if re.match(r"gymnasium.*_v5:", str(spec.entry_point)))
LIMIT = {"max_episode_steps": 60}


@pytest.fixture(params=CLASSIC + PACKAGED + MUJOCO)
def env_id(request: pytest.FixtureRequest) -> str:
    if request.param in MUJOCO:
        pytest.importorskip("mujoco")
    return request.param


def random_actions(pool: EnvPool, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(steps)
    if pool.spec.action_kind == "discrete":
        return list(rng.integers(pool.spec.action_dim, size=(steps, pool.num_envs)))
    return list(rng.uniform(-1, 1, (steps, pool.num_envs, pool.spec.action_dim)).astype(np.float32))


def assert_same(left: list[Transition], right: list[Transition]) -> None:
    for step, (one, other) in enumerate(zip(left, right, strict=True)):
        for name in ("next_obs", "rewards", "terminated", "truncated", "obs"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), f"{name} after {step} steps")
        assert one.finished == other.finished


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """The state after a way through flat storage: tensors by name, and strict JSON."""
    tensors, values = {}, {}

    def put(prefix: str, node: Any) -> None:
        if isinstance(node, dict):
            for name, child in node.items():
                assert "/" not in name
                put(f"{prefix}/{name}", child)
        elif isinstance(node, np.ndarray):
            tensors[prefix] = torch.tensor(node)
        else:
            values[prefix] = node

    put("", state)
    read: dict[str, Any] = {}
    for path, leaf in {**tensors, **json.loads(json.dumps(values, allow_nan=False))}.items():
        *folders, name = path.split("/")[1:]
        node = read
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = leaf
    return read


def assert_goes_on_exactly(env_id: Any, kind: str, env_kwargs: dict[str, Any], workers: int = 0) -> None:
    """Snapshot in the middle of episodes, after 37 steps or a few more, then 60 steps over their ends."""
    make = partial(EnvPool, env_id, 2, seed=3, env_kwargs=env_kwargs)
    with make(workers=workers) as pool, make() as fresh:
        assert pool.resume_kind == kind
        actions = iter(random_actions(pool, 150))
        pool.reset()
        for row in islice(actions, 37):
            pool.step(row)
        while min(pool.snapshot()["lengths"]) < 2:
            pool.step(next(actions))
        state = stored(pool.snapshot())
        following = list(islice(actions, 60))
        uninterrupted = [pool.step(row) for row in following]
        assert np.any([step.terminated | step.truncated for step in uninterrupted], axis=0).all()
        for restored in (fresh, pool):
            assert restored.restore(state) == []
            assert_same([restored.step(row) for row in following], uninterrupted)


def test_native_snapshots_are_exact(env_id: str):
    assert_goes_on_exactly(env_id, "snapshot", LIMIT)


def test_replayed_episodes_are_exact(env_id: str):
    assert_goes_on_exactly(partial(gym.make, env_id), "replay", LIMIT)


@pytest.mark.usefixtures("forked_workers")
def test_a_workers_snapshot_is_restored_in_process():
    assert_goes_on_exactly("Pendulum-v1", "snapshot", LIMIT, workers=2)


def test_stacked_frames_are_part_of_a_snapshot():
    if "StackedPendulum-v0" not in gym.registry:
        stack = FrameStackObservation.wrapper_spec(stack_size=3, padding_type="zero")
        pendulum = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
        gym.register("StackedPendulum-v0", pendulum, max_episode_steps=60, additional_wrappers=(stack,))
    assert_goes_on_exactly("StackedPendulum-v0", "snapshot", {})


def test_a_snapshot_at_the_first_observation_is_exact():
    with EnvPool("Pendulum-v1", seed=1) as pool, EnvPool("Pendulum-v1", seed=1) as fresh:
        pool.reset()
        assert fresh.restore(stored(pool.snapshot())) == []
        np.testing.assert_array_equal(fresh.obs, pool.obs)
        action = np.array([[0.5]], np.float32)
        assert_same([fresh.step(action)], [pool.step(action)])


def test_a_restored_episode_can_be_saved_again():
    with EnvPool(partial(gym.make, "Pendulum-v1")) as pool:
        pool.reset()
        for _ in range(2):
            pool.step(np.array([[0.5]]))
            assert pool.restore(stored(pool.snapshot())) == []
        assert pool.snapshot()["envs"]["0"]["actions"].tolist() == [[1.0], [1.0]]  # in torque: half of 2


def test_returns_and_lengths_continue_from_a_snapshot():
    with EnvPool("CartPole-v1", env_kwargs={"max_episode_steps": 5}) as pool:
        pool.reset()
        pool.step(np.array([0]))
        pool.step(np.array([1]))
        state = pool.snapshot()
        pool.reset()
        pool.restore(state)
        [episode] = [e for action in (0, 1, 0) for e in pool.step(np.array([action])).finished]
        assert (episode.return_, episode.length) == (5.0, 5)


def test_the_random_generator_is_part_of_a_snapshot():
    env = gym.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=0)
    env.unwrapped.np_random.random(3)
    state = snapshots.to_numpy(stored(snapshots.save_state(env)))
    expected = env.unwrapped.np_random.random(4)
    snapshots.restore_state(env, state)
    np.testing.assert_array_equal(env.unwrapped.np_random.random(4), expected)


def test_every_plain_value_is_restored_with_its_type():
    values = {
        "count": 3, "share": 0.1, "limit": float("-inf"), "width": np.float32(0.1), "flag": np.bool_(True), "name": "x",
        "nothing": None, "range": (0.5, float("inf")), "none_of": [], "nested": [(1, np.int64(2)), [3.0]],
    }  # fmt: skip
    env = gym.make("CartPole-v1", disable_env_checker=True)
    vars(env.unwrapped).update(values)
    state = snapshots.to_numpy(stored(snapshots.save_state(env)))
    vars(env.unwrapped).update(dict.fromkeys(values))
    snapshots.restore_state(env, state)
    for name, value in values.items():
        assert (getattr(env.unwrapped, name), type(getattr(env.unwrapped, name))) == (value, type(value))


class TinkeredCartPole(CartPoleEnv):
    """A user's class, whose state is unknown."""


def test_only_supported_environments_and_wrappers_have_exact_snapshots():
    cartpole = gym.make("CartPole-v1", disable_env_checker=True)
    assert snapshots.is_exact_for(cartpole)
    assert not snapshots.is_exact_for(NormalizeObservation(cartpole))
    assert not snapshots.is_exact_for(TinkeredCartPole())


def test_a_snapshot_of_another_environment_is_refused():
    state = snapshots.save_state(gym.make("Acrobot-v1", disable_env_checker=True))
    with pytest.raises(ValueError, match="it consisted of TimeLimit, OrderEnforcing, AcrobotEnv, now it consists of"):
        snapshots.restore_state(gym.make("CartPole-v1", disable_env_checker=True), state)


class Wandering(gym.Env[np.ndarray, np.int64]):
    """Its first observation depends on the number of resets, so a seed does not reproduce an episode."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Discrete(2)
    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        Wandering.resets += 1
        self.place = float(Wandering.resets)
        return np.array([self.place], np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place += 0.25
        return np.array([self.place], np.float32), 1.0, False, False, {}


def test_a_failed_restore_is_reported_and_starts_a_new_episode():
    with EnvPool(Wandering) as pool:
        pool.reset()
        pool.step(np.array([0]))
        reasons = pool.restore(pool.snapshot())
        assert reasons == [
            "environment 0 could not be restored exactly: its replayed episode led to a different observation"
        ]
        assert pool.obs.item() == Wandering.resets  # a first observation
        assert pool.snapshot()["envs"]["0"]["episode"] == 1
        assert pool.snapshot()["lengths"] == [0]


class Growing(Wandering):
    """Its rewards depend on the number of resets, and its observations do not."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, Wandering.resets / 2, terminated, truncated, info


def test_a_replayed_episode_with_other_rewards_is_reported_and_starts_a_new_one(monkeypatch):
    monkeypatch.setattr(Wandering, "resets", 0)
    with EnvPool(Growing) as pool:
        pool.reset()
        pool.step(np.array([0]))
        pool.step(np.array([0]))
        reasons = pool.restore(pool.snapshot())
        difference = "its replayed episode had the return 2, not 1 as before"
        assert reasons == [f"environment 0 could not be restored exactly: {difference}"]
        assert pool.snapshot()["lengths"] == [0]


def test_a_snapshot_of_another_pool_is_refused():
    with EnvPool("CartPole-v1", 2, seed=1) as pool, EnvPool("CartPole-v1", 1, seed=1) as other:
        pool.reset()
        with pytest.raises(ValueError, match="has 2 environments with seed 1, but this pool has 1 with seed 1"):
            other.restore(pool.snapshot())
