"""Atari preprocessing on real games: images, rewards, lives and time limits."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from rl_training.envs.atari import AreaAverage, AtariGame, make_atari
from rl_training.envs.creation.making import make_env
from rl_training.envs.pools.pool import EnvPool

pytest.importorskip("ale_py", reason="Atari needs the extra atari")
BREAKOUT = "ALE/Breakout-v5"
PLAIN = {"repeat_action_probability": 0.0, "noop_max": 0}  # deterministic
NOOP, FIRE, RIGHT = 0, 1, 2


def game(env_id: str = BREAKOUT, **options: Any) -> AtariGame:
    env = make_atari(env_id, **{**PLAIN, **options})
    assert isinstance(env, AtariGame)
    return env


def played(env: AtariGame, actions: Any, seed: int = 0) -> list[tuple[np.ndarray, float, bool, bool, dict[str, Any]]]:
    """Plays these actions until the end of the episode."""
    env.reset(seed=seed)
    steps = []
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


def test_a_downscaled_image_has_area_means():
    rows = np.array([10, 20, 30, 40, 50], np.uint8)
    image = np.stack([rows, rows + 100], axis=1)
    # The middle row lies half in each: (10 + 20 + 30 / 2) / 2.5 = 18, and (30 / 2 + 40 + 50) / 2.5 = 42.
    assert AreaAverage((5, 2), (2, 2))(image).tolist() == [[18, 118], [42, 142]]
    assert AreaAverage((5, 2), (2, 1))(image).tolist() == [[68], [92]]


def test_a_downscaled_screen_has_exact_area_means():
    screen = np.random.default_rng(0).integers(0, 256, (210, 160), dtype=np.uint8)
    # Twice as high and 21 times as wide, each new pixel covers 5 x 40 whole ones.
    blocks = screen.astype(np.int64).repeat(2, axis=0).repeat(21, axis=1).reshape(84, 5, 84, 40)
    np.testing.assert_array_equal(AreaAverage((210, 160), (84, 84))(screen), np.rint(blocks.sum((1, 3)) / 200))


def test_an_image_can_be_enlarged_along_one_side():
    image = np.array([[10], [20], [60]], np.uint8)
    assert AreaAverage((3, 1), (2, 2))(image).tolist() == [[13, 13], [47, 47]]  # (10 + 20 / 2) / 1.5


def test_a_frame_is_the_maximum_of_the_last_two_of_four():
    bare: Any = make_atari(
        BREAKOUT, preprocess=False, frameskip=1, repeat_action_probability=0.0, obs_type="grayscale"
    )  # fmt: skip
    bare.reset(seed=0)
    screens = [bare.step(action)[0] for action in [FIRE] * 4 + [RIGHT] * 4]
    shrink = AreaAverage((210, 160), (84, 84))
    fired, moved = (shrink(np.maximum(screens[i], screens[i + 1])) for i in (2, 6))
    env = game()
    first, _ = env.reset(seed=0)
    np.testing.assert_array_equal(first, np.stack([fired] * 4))
    np.testing.assert_array_equal(env.step(RIGHT)[0], np.stack([fired, fired, fired, moved]))
    assert not np.array_equal(moved, shrink(screens[7]))  # the ball has moved between the two


def test_screen_size_and_stack_can_be_set():
    env = game(screen_size=64, stack=1)
    assert env.observation_space.shape == (1, 64, 64)
    large, small = (played(each, [RIGHT] * 3)[-1][0] for each in (game(screen_size=84), env))
    assert small.shape == (1, 64, 64)
    assert small.mean() == pytest.approx(large[-1].mean(), abs=0.5)  # the same screen
    two = played(game(screen_size=64, stack=2), [RIGHT] * 3)
    np.testing.assert_array_equal(two[-1][0], np.concatenate([two[-2][0][1:], small]))


def test_colour_frames_have_three_planes():
    bare: Any = make_atari(BREAKOUT, preprocess=False, frameskip=1, repeat_action_probability=0.0, obs_type="rgb")
    bare.reset(seed=0)
    screens = [np.moveaxis(bare.step(NOOP)[0], -1, 0) for _ in range(8)]
    shrink = AreaAverage((210, 160), (64, 64))
    first, second = (np.stack([shrink(plane) for plane in np.maximum(screens[i], screens[i + 1])]) for i in (2, 6))
    env = game(screen_size=64, stack=2, grayscale=False, fire_at_start=False)
    np.testing.assert_array_equal(env.reset(seed=0)[0], np.concatenate([first, first]))
    np.testing.assert_array_equal(env.step(NOOP)[0], np.concatenate([first, second]))
    assert not np.array_equal(second[0], second[2])  # red is not blue


def test_fire_at_start_can_be_turned_off():
    served, waiting = (played(game(fire_at_start=fire), [NOOP] * 300) for fire in (True, False))
    assert served[-1][4]["lives"] < 5
    assert waiting[-1][4]["lives"] == 5


def test_frames_are_stored_once_only_if_each_step_adds_one_plane():
    def stacks_frames(**options: Any) -> bool:
        return EnvPool(BREAKOUT, env_kwargs={"noop_max": 0, **options}).stacks_frames

    assert stacks_frames(screen_size=64)
    assert not stacks_frames(grayscale=False)


def test_rewards_are_clipped_in_training_and_raw_in_evaluation():
    actions = np.random.default_rng(0).integers(6, size=200)
    raw, clipped = (
        [step[1] for step in played(game("ALE/SpaceInvaders-v5", training=training), actions)]
        for training in (False, True)
    )
    assert max(raw) >= 5  # the cheapest invader
    assert clipped == np.sign(raw[: len(clipped)]).tolist()
    unclipped = played(game("ALE/SpaceInvaders-v5", training=True, clip_rewards=False), actions)
    assert [step[1] for step in unclipped] == raw[: len(unclipped)]


def test_a_lost_life_is_terminal_in_training_and_the_game_continues():
    env, lives, frames = game(training=True), [], []
    for episode in range(5):
        *_, (_, _, terminated, truncated, info) = played(env, [NOOP] * 100, seed=episode)
        assert (terminated, truncated) == (True, False)
        lives.append(info["lives"])
        frames.append(info["episode_frame_number"])
    assert lives == [4, 3, 2, 1, 0]
    assert frames == sorted(frames)
    assert env.reset(seed=5)[1] == {"lives": 5, "episode_frame_number": 4}  # a new game, and FIRE


def test_an_evaluation_episode_is_a_whole_game_with_automatic_fire():
    steps = played(game(), [NOOP] * 1000)
    assert len(steps) < 1000
    assert steps[-1][2:4] == (True, False)
    assert [lives for lives in range(5, -1, -1) if lives in {step[4]["lives"] for step in steps}] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("training", [False, True])
def test_the_frame_limit_truncates_and_a_new_game_follows(training):
    env = game(training=training, max_num_frames_per_episode=40)
    steps = played(env, [NOOP] * 100)
    assert len(steps) == 9  # 4 frames of FIRE, then 9 times 4
    assert steps[-1][2:4] == (False, True)
    assert env.reset(seed=1)[1]["episode_frame_number"] == 4


def test_a_game_starts_with_up_to_thirty_no_ops():
    env = game(noop_max=30)
    waited = {env.reset(seed=seed)[1]["episode_frame_number"] - 4 for seed in range(200)}
    assert (min(waited), max(waited)) == (0, 30)


def test_sticky_actions_depend_on_the_seed_alone():
    actions = np.random.default_rng(1).integers(4, size=20)
    env = game(repeat_action_probability=0.25)
    first, other, again = ([step[0] for step in played(env, actions, seed=seed)] for seed in (0, 1, 0))
    assert not np.array_equal(first, other)
    np.testing.assert_array_equal(first, again)


def test_a_quarter_of_the_frames_is_sticky_in_v5_games():
    env, bare = make_atari(BREAKOUT), make_atari("BreakoutNoFrameskip-v4")
    env.reset(seed=0)
    bare.reset(seed=0)
    assert isinstance(env, AtariGame)
    held = []
    for frame in range(4000):
        env._sticky_frame(frame % 2)
        held.append(env._held != frame % 2)
    # With alternating actions, a sticky frame differs from the request unless the previous frame differed too:
    # x = (1 - x) / 4, so x = 1/5; four standard errors are 0.025.
    assert abs(np.mean(held) - 0.2) < 0.026
    assert vars(bare)["_sticky"] == 0.0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"frameskip": 0}, "frameskip must be an integer of at least 1, got 0"),
        ({"frameskip": True}, "frameskip must be an integer of at least 1, got True"),
        ({"clip_rewards": "false"}, "clip_rewards must be true or false, got false"),
        ({"obs_type": "ram"}, "obs_type is an option of raw ALE games; set preprocess to false"),
        ({"noop_max": -1}, "noop_max must be an integer of at least 0, got -1"),
        ({"repeat_action_probability": 1.0}, "repeat_action_probability must be at least 0 and below 1, got 1.0"),
        ({"repeat_action_probability": "x"}, "repeat_action_probability must be at least 0 and below 1, got x"),
        ({"continuous": True}, "preprocessing requires Discrete actions, got Box"),
    ],
)
def test_invalid_options_are_refused(option, words):
    with pytest.raises(ValueError, match=words):
        game(**option)


def test_the_first_action_of_a_life_is_never_sticky():
    env = game(repeat_action_probability=0.99)
    env.reset(seed=0)
    assert env.action_history().tolist() == [FIRE] * 4


def test_games_are_preprocessed_unless_turned_off():
    with EnvPool(BREAKOUT) as pool, EnvPool(BREAKOUT, env_kwargs={"preprocess": False}) as bare:
        assert (pool.spec.obs_shape, pool.spec.obs_dtype, pool.resume_kind) == ((4, 84, 84), "uint8", "snapshot")
        assert (bare.spec.obs_shape, bare.resume_kind) == ((3, 210, 160), "replay")
    assert make_env(f"ale_py:{BREAKOUT}", {}).observation_space.shape == (4, 84, 84)


def test_a_missing_extra_is_named_in_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match=r'ALE/Breakout-v5 needs .* run: pip install "rl-training\[atari\]"'):
        make_env(BREAKOUT, {})


def test_a_misspelt_game_gets_suggestions():
    with pytest.raises(ValueError, match=r"'ALE/Brakout-v5' not found\. Did you mean 'ALE/Breakout-v5'"):
        make_env("ALE/Brakout-v5", {})
    with pytest.raises(ValueError, match=r"'ALE/Breakout' not found\. Did you mean 'ALE/Breakout-v5'"):
        make_env("ALE/Breakout", {})
