"""Device environments against Gymnasium's and MinAtar's own, from the same states and with the same actions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.envs.device.base import State, TensorEnv
from rl_training.envs.device.classic import Acrobot, CartPole, MountainCar, MountainCarContinuous, Pendulum
from rl_training.envs.device.draws import Draws
from rl_training.envs.device.minatar import Breakout, Freeway, Game
from rl_training.envs.pools.pool import EnvPool

CLASSIC = {
    "CartPole-v1": CartPole(),
    "Pendulum-v1": Pendulum(),
    "Acrobot-v1": Acrobot(),
    "MountainCar-v0": MountainCar(),
    "MountainCarContinuous-v0": MountainCarContinuous(),
}
NO_DRAWS = Draws.of(0, torch.zeros(1, dtype=torch.int64))


def random_action(env: TensorEnv, generator: np.random.Generator) -> Any:
    if env.spec.action_kind == "discrete":
        return int(generator.integers(env.spec.action_dim))
    return generator.uniform(-1, 1, 1).astype(np.float32)


@pytest.mark.parametrize("env_id", CLASSIC)
def test_a_thousand_steps_equal_gymnasiums(env_id):
    env, original, generator = CLASSIC[env_id], gym.make(env_id), np.random.default_rng(0)
    state, differences, ends = started(env, original, seed=0), [], 0
    for step in range(1000):
        action = random_action(env, generator)
        scale = 1.0 if isinstance(action, int) else np.float32(env.spec.action_high[0])
        obs, reward, terminated, truncated, _ = original.step(action * scale if scale != 1.0 else action)
        state, rewards, ended = env.step(state, torch.as_tensor(np.asarray(action))[None], NO_DRAWS)
        differences.append(np.abs(env.observe(state)[0].numpy() - obs).max())
        differences.append(abs(float(rewards[0]) - float(reward)))
        assert bool(ended[0]) == terminated
        if terminated or truncated:
            ends += 1
            state = started(env, original, seed=step)
    assert max(differences) < 1e-6
    assert ends > 0


def started(env: TensorEnv, original: Any, seed: int) -> State:
    """The state of the original after a reset. MountainCarContinuous has float32 states from its first step on."""
    original.reset(seed=seed)
    dtype = np.float32 if isinstance(env, MountainCarContinuous) else np.float64
    original.unwrapped.state = np.array(original.unwrapped.state, dtype)
    return {"x": torch.as_tensor(original.unwrapped.state)[None]}


@pytest.mark.parametrize("env_id", CLASSIC)
def test_spec_and_time_limit_are_those_of_the_original(env_id):
    with EnvPool(env_id) as pool:
        assert CLASSIC[env_id].spec == pool.spec
    assert gym.spec(env_id).max_episode_steps == CLASSIC[env_id].time_limit


@pytest.mark.parametrize("env_id", CLASSIC)
def test_first_observations_are_spread_as_in_the_original(env_id):
    env, original = CLASSIC[env_id], gym.make(env_id)
    ours = env.observe(env.initial(Draws.of(3, torch.arange(4000)))).numpy()
    theirs = np.stack([original.reset(seed=seed)[0] for seed in range(4000)])
    spread = theirs.std(0) + 1e-9
    assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 0.1 * spread)
    assert np.all(np.abs(ours.std(0) - theirs.std(0)) < 0.05 * spread)
    assert np.all(np.abs(ours.min(0) - theirs.min(0)) < 0.02 * np.ptp(theirs, 0) + 1e-6)
    assert np.all(np.abs(ours.max(0) - theirs.max(0)) < 0.02 * np.ptp(theirs, 0) + 1e-6)


def breakout_state(game: Any) -> State:
    numbers = {name: torch.tensor([getattr(game, source)]) for name, source in
               {"direction": "ball_dir", "paddle": "pos"}.items()}  # fmt: skip
    return {
        "ball": torch.tensor([[game.ball_y, game.ball_x]]), "last": torch.tensor([[game.last_y, game.last_x]]),
        "bricks": torch.tensor(game.brick_map[None] > 0), "struck": torch.tensor([game.strike]), **numbers,
    }  # fmt: skip


def freeway_state(game: Any) -> State:
    cars = torch.tensor([[list(map(int, car)) for car in game.cars]])
    return {
        "cars": cars[..., 0], "timers": cars[..., 2], "speeds": cars[..., 3], "player": torch.tensor([int(game.pos)]),
        "pause": torch.tensor([int(game.move_timer)]), "left": torch.tensor([game.terminate_timer]),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "game", "copied", "steps"),
    [("breakout", Breakout(), breakout_state, 800), ("freeway", Freeway(), freeway_state, 2600)],
)  # an episode of Freeway has 2,500 steps
def test_games_follow_the_rules_of_minatar(name, game, copied, steps):
    minatar = pytest.importorskip("minatar", reason="pip install --no-deps MinAtar")
    original = minatar.Environment(name, sticky_action_prob=0.0)
    original.seed(1)
    original.reset()
    generator, state, ends, rewarded = np.random.default_rng(2), copied(original.env), 0, 0.0
    for _ in range(steps):
        action = chosen(name, original.env, generator)
        reward, terminated = original.act(action)
        outcome = game.play(state, torch.tensor([action]), NO_DRAWS)
        assert (float(outcome.rewards[0]), bool(outcome.terminated[0])) == (reward, terminated)
        # Freeway draws new speeds at the goal.
        state = copied(original.env) if name == "freeway" and reward else outcome.state
        assert torch.equal(game.observe(state)[0], minatar_image(original))
        assert {key: value.tolist() for key, value in state.items()} == {
            key: value.tolist() for key, value in copied(original.env).items()
        }
        rewarded += reward
        if terminated:
            ends += 1
            original.reset()
            state = copied(original.env)
    assert ends > 0
    assert rewarded > 10


def chosen(name: str, game: Any, generator: np.random.Generator) -> int:
    """Mostly good moves, so that much of the game is seen; otherwise random ones."""
    if generator.random() < 0.2:
        return int(generator.integers(6))
    if name == "freeway":
        return 2
    return 1 if game.ball_x < game.pos else 3


def minatar_image(original: Any) -> Tensor:
    return torch.as_tensor(255 * original.state().transpose(2, 0, 1).astype(np.uint8))


@pytest.mark.parametrize("game", [Breakout(), Freeway()])
def test_a_tenth_of_the_actions_is_sticky(game: Game):
    rows = torch.arange(5000)
    state = game.initial(Draws.of(0, rows))
    assert {"player", "paddle"} & state.keys()
    state["last_action"] = torch.full_like(rows, 2)
    outcome = game.step(state, torch.full_like(rows, 4), Draws.of(1, rows))
    assert float((outcome.state["last_action"] == 2).float().mean()) == pytest.approx(0.1, abs=0.02)
