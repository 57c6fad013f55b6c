"""Small pixel environments: observations, rewards, and the need for memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.envs.creation.making import make_env
from rl_training.envs.pools.pool import EnvPool
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.policies import RandomPolicy
from rl_training.types import Action

LEFT, STAY, RIGHT = 0, 1, 2


def image_with(*blocks: tuple[slice, slice]) -> np.ndarray:
    image = np.zeros((1, 16, 16), np.uint8)
    for rows, columns in blocks:
        image[0, rows, columns] = 255
    return image


def test_catch_shows_the_falling_ball_and_rewards_the_last_step():
    env = make_env("Catch-v0", {})
    first, _ = env.reset(seed=0)
    ball = int(np.flatnonzero(first[0, 3])[0])  # a cell is three pixels wide
    paddle = slice(6, 9)  # the third of five
    np.testing.assert_array_equal(first, image_with((slice(3, 4), slice(ball, ball + 3)), (slice(12, 13), paddle)))
    second, *_ = env.step(STAY)
    np.testing.assert_array_equal(second, image_with((slice(4, 5), slice(ball, ball + 3)), (slice(12, 13), paddle)))
    steps = [env.step(STAY) for _ in range(8)]
    assert [step[1] for step in steps[:-1]] == [0] * 7
    assert [step[2] for step in steps] == [False] * 7 + [True]
    assert steps[-1][1] == (1 if ball == 6 else -1)


def test_the_paddle_stops_at_the_walls():
    env = make_env("Catch-v0", {})
    env.reset(seed=0)
    for action, column in ((LEFT, 3), (LEFT, 0), (LEFT, 0), (RIGHT, 3)):
        assert np.flatnonzero(env.step(action)[0][0, 12])[0] == column


class Follow:
    """Moves towards the ball."""

    def act(self, obs, memory=None, *, deterministic=False, generator=None):
        ball, paddle = (rows.argmax(-1) for rows in (obs[:, 0, :12].amax(1), obs[:, 0, 12]))
        return Action((ball - paddle).sign() + 1)


def test_following_the_ball_catches_it_and_random_actions_rarely_do():
    assert evaluate(Follow(), "Catch-v0", episodes=40, seed=0).returns == [1.0] * 40
    spec = EnvPool("Catch-v0").spec
    random = evaluate(RandomPolicy(spec), "Catch-v0", episodes=1000, seed=0).returns
    assert np.mean(random) == pytest.approx(1 / 5 - 4 / 5, abs=0.08)  # standard error 0.8 / sqrt(1000) = 0.025


def test_the_question_is_independent_of_the_cue():
    env, images = make_env("CueMemory-v0", {}), {}
    for seed in range(10):
        first, _ = env.reset(seed=seed)
        side = int(first[0, 8, 12] > 0)  # 1 if the cue is on the right
        np.testing.assert_array_equal(first, image_with((slice(4, 12), slice(8 * side, 8 * side + 8))))
        following = [env.step(0) for _ in range(8)]
        assert [step[1] for step in following] == [0] * 7 + [1 - 2 * side]
        assert [step[2] for step in following] == [False] * 7 + [True]
        images[side] = np.stack([step[0] for step in following])
        np.testing.assert_array_equal(images[side][-1], first)  # the cue is shown again
    np.testing.assert_array_equal(images[0][:-1], images[1][:-1])
    assert [int(image.any()) for image in images[0]] == [0] * 6 + [1, 1]  # blank until the question


def test_the_number_of_blank_images_can_be_set():
    env = make_env("CueMemory-v0", {"blanks": 0})
    env.reset(seed=0)
    assert [env.step(0)[2] for _ in range(2)] == [False, True]
    with pytest.raises(ValueError, match="blanks must be an integer of at least 0, got -1"):
        make_env("CueMemory-v0", {"blanks": -1})


def test_observations_are_uint8_images():
    spec = EnvPool("CueMemory-v0").spec
    assert (spec.obs_shape, spec.obs_dtype, spec.action_dim) == ((1, 16, 16), "uint8", 2)
    assert torch.as_tensor(EnvPool("Catch-v0", 3).reset()).dtype == torch.uint8
