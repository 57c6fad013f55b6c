"""Masks of valid actions at the environment boundary: from observations and from `info`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs.creation.making import EnvFactory, make_env
from rl_training.envs.masks import ActionMasks, sample_action
from rl_training.envs.pools.group import EnvError
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.pools.worker_choice import _step_seconds
from rl_training.envs.snapshots import save_state
from rl_training.envs.spec import env_spec_of

STEP = np.array([0.5], np.float32)


class Masked(gym.Env[Any, Any]):
    """Returns `masks` in turn; they are in `info`, or with `key` in the observations."""

    def __init__(self, masks: Any, *, key: bool = False, actions: Any = None, name: str = "action_mask") -> None:
        self.masks, self.key, self.name = masks, key, name
        self.action_space = gym.spaces.Discrete(3) if actions is None else actions
        own: Any = gym.spaces.Box(-1, 1, (1,))
        parts = {"position": own, "action_mask": gym.spaces.Box(0, 1, (3,), np.int8)}
        self.observation_space = gym.spaces.Dict(parts) if key else own

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time = 0
        return self._result()

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, info = self._result()
        return obs, 0.0, self.time == len(self.masks) - 1, False, info

    def _result(self) -> Any:
        mask = self.masks[self.time]
        mask = np.array(mask, np.int8) if isinstance(mask, list) else mask
        if self.key:
            return {"position": STEP, "action_mask": mask}, {}
        return STEP, {} if mask is None else {self.name: mask}


def factory(*masks: Any, **options: Any) -> EnvFactory:
    return EnvFactory(partial(Masked, masks, **options)).with_masks()


@pytest.mark.parametrize("options", [{}, {"key": True}, {"name": "action_masks"}])
def test_masks_are_a_part_of_the_observations(options):
    env = make_env(factory([1, 0, 1], [0, 1, 0], [0, 0, 0], **options))
    spec = env_spec_of(env)
    assert spec.obs_shape == (4,)
    assert spec.action_mask == 0
    assert env.reset(seed=0)[0].tolist() == [1, 0, 1, 0.5]
    assert env.step(0)[0].tolist() == [0, 1, 0, 0.5]
    assert env.step(1)[0].tolist() == [0, 0, 0, 0.5]  # the episode has ended


def test_the_last_step_of_an_episode_needs_no_mask():
    env = make_env(factory([1, 0, 1], None))
    env.reset(seed=0)
    obs, _, terminated, _, _ = env.step(0)
    assert terminated
    assert obs.tolist() == [0, 0, 0, 0.5]


def test_masks_of_several_choices_follow_one_another():
    actions = gym.spaces.MultiDiscrete([2, 3])
    parts = (np.array([0, 1]), np.array([1, 0, 1]))
    for mask in (parts, [0, 1, 1, 0, 1]):
        env = make_env(factory(mask, mask, actions=actions))
        assert env.reset()[0].tolist() == [0, 1, 1, 0, 1, 0.5]
    pool = EnvPool(factory([0, 1, 1, 0, 1], [1, 1, 0, 0, 0], None, actions=actions))
    pool.reset()
    with pytest.raises(EnvError, match="environment 0: action_mask has no valid action for choice 1 after step 1"):
        pool.step(np.array([[1, 2]]))


def test_random_actions_are_valid_ones():
    choices = gym.spaces.MultiDiscrete([2, 3])
    several = make_env(factory([0, 1, 1, 0, 1], [1, 0, 0, 1, 0], [1, 1, 1, 1, 1], actions=choices))
    env: Any = make_env(factory([1, 0, 1], [0, 1, 0], [1, 1, 1]))
    env.reset(seed=0)
    several.reset(seed=0)
    assert {int(sample_action(env)) for _ in range(30)} == {0, 2}
    assert {tuple(sample_action(several)) for _ in range(30)} == {(1, 0), (1, 2)}
    env.step(0)
    several.step(np.array([1, 0]))
    assert {int(sample_action(env)) for _ in range(30)} == {1}
    assert {tuple(sample_action(several)) for _ in range(30)} == {(0, 1)}


class Strict(Masked):
    def step(self, action: Any) -> Any:
        assert self.masks[self.time][action], "an invalid action"
        return super().step(action)


def test_steps_are_timed_with_valid_actions():
    source = EnvFactory(partial(Strict, ([1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 1]))).with_masks()
    assert _step_seconds(partial(make_env, source)) > 0


def test_a_snapshot_has_no_mask_as_older_ones_have_none():
    env = ActionMasks(gym.make("CombinationLock-v0"), from_info=True)
    env.reset(seed=0)
    env.step(sample_action(env))
    saved = save_state(env)["layers"]["0"]
    assert [name for name, value in saved.items() if isinstance(value, np.ndarray)] == ["_starts"]


@pytest.mark.parametrize("options", [{}, {"key": True}])
def test_a_state_without_a_valid_action_names_environment_and_step(options):
    pool = EnvPool(factory([1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 1], **options), 2)
    pool.reset()
    pool.step(np.array([0, 0]))
    with pytest.raises(EnvError, match="environment 0: action_mask has no valid action after step 2 of the episode"):
        pool.step(np.array([0, 0]))
    with pytest.raises(EnvError, match="environment 0: action_mask has no valid action at the start of an episode"):
        EnvPool(factory([0, 0, 0], [1, 1, 1], **options)).reset()


def test_masks_that_are_missing_or_too_long_are_refused():
    pool = EnvPool(factory([1, 0, 1], None, [1, 1, 1]))
    pool.reset()
    with pytest.raises(EnvError, match="info has no action_mask after step 1 of the episode, but the training began"):
        pool.step(np.array([0]))
    with pytest.raises(EnvError, match="action_mask in info must have 3 entries at the start of an episode, got 4"):
        EnvPool(factory([1, 0, 1, 1])).reset()


@pytest.mark.parametrize("number", [0.5, -np.inf, np.nan, 2.0])
def test_masks_of_other_numbers_than_0_and_1_are_refused(number):
    pool = EnvPool(factory([1, 0, 1], np.array([1, number, 1]), [1, 1, 1]))
    pool.reset()
    with pytest.raises(EnvError, match=rf"action_mask in info must hold 1 or True .*, got {number} after step 1"):
        pool.step(np.array([0]))
    pool = EnvPool(factory([1, 0, 1], [1, 2, 1], [1, 1, 1], key=True))
    pool.reset()
    with pytest.raises(EnvError, match=r"action_mask must hold 1 or True .*, got 2 after step 1"):
        pool.step(np.array([0]))


def test_an_observed_mask_without_a_number_for_each_action_is_refused():
    source = factory([1, 0, 1], key=True, actions=gym.spaces.Discrete(4))
    with pytest.raises(ValueError, match="action_mask of the observations has 3 entries, but there are 4 actions"):
        make_env(source)
    older = replace(env_spec_of(make_env(factory([1, 0, 1], key=True))), action_mask=None)
    assert isinstance(make_env(source, like=older), gym.Env)


def test_environments_without_masks_and_older_runs_stay_as_they_are():
    plain = factory(None, None)
    assert plain.masks_in_info is False
    assert env_spec_of(make_env(plain)).action_mask is None
    box = factory([1, 0, 1], actions=gym.spaces.Box(-1, 1, (3,)))
    assert box.masks_in_info is False
    for options in ({}, {"key": True}):
        source = factory([1, 0, 1], [1, 1, 1], **options)
        spec = env_spec_of(make_env(source))
        before = replace(spec, action_mask=None)  # as stored by versions without masks
        assert env_spec_of(make_env(source, like=before)).action_mask is None
        again = make_env(replace(source, masks_in_info=False), like=spec)
        assert env_spec_of(again) == spec
        assert env_spec_of(again).action_mask == 0


def test_looking_for_masks_leaves_the_global_generators_as_they_are():
    class Careless(Masked):
        def reset(self, **options: Any) -> Any:
            np.random.rand()
            return super().reset(**options)

    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    assert EnvFactory(lambda: Careless([[1, 0, 1]])).with_masks().masks_in_info
    assert np.random.rand() == expected


def test_the_lock_opens_by_its_combination_alone():
    env: Any = gym.make("CombinationLock-v0", length=3, num_actions=50)
    _, info = env.reset(seed=1)
    assert info["action_mask"].sum() == 2
    right, wrong = env.unwrapped._valid.T.tolist()
    invalid = next(action for action in range(50) if action not in (right[1], wrong[1]))
    states = [env.step(action)[0] for action in (right[0], invalid, wrong[1], right[0], right[1])]
    assert states == [1, 1, 0, 1, 2]
    assert env.step(right[2])[1:3] == (1.0, True)
    assert env.unwrapped.invalid_actions == 1
    assert "action_mask" not in gym.make("CombinationLock-v0", masks=False).reset()[1]
