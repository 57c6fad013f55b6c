"""Atari games as agents are trained and scored on them: small pictures in stacks, without OpenCV."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

OPTIONS = (  # of AtariGame, beside those told by other ways
    "frameskip", "noop_max", "stack", "screen_size", "grayscale", "fire_at_start", "clip_rewards",
    "terminal_on_life_loss",
)  # fmt: skip
NOOP = 0  # every game's first action


def is_atari(env_id: str) -> bool:
    """Whether this is the id of a game of the Arcade Learning Environment."""
    name = env_id.removeprefix("ale_py:")
    return name.startswith("ALE/") or name.endswith(("NoFrameskip-v0", "NoFrameskip-v4"))


def make_atari(env_id: str, *, training: bool = False, preprocess: bool = True, **options: Any) -> gym.Env[Any, Any]:
    """The game as an AtariGame, or without `preprocess` as ALE has it; options are the one's or the other's."""
    import ale_py  # whose games are registered by this

    gym.register_envs(ale_py)
    env_id = env_id.removeprefix("ale_py:")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else every game prints a banner
    if not preprocess:
        return gym.make(env_id, disable_env_checker=True, **options)
    ours = {name: options.pop(name) for name in OPTIONS if name in options}
    for name in ("obs_type", "sound_obs"):
        if name in options:
            raise ValueError(f"{name} is for games as ALE has them: set preprocess to false with it, or leave it out")
    sticky = options.pop("repeat_action_probability", gym.spec(env_id).kwargs["repeat_action_probability"])
    # Both are ours to do: ALE would skip frames unseen, and hides the dice of its sticky actions from a snapshot.
    bare = gym.make(env_id, disable_env_checker=True, frameskip=1, repeat_action_probability=0.0, **options)
    return AtariGame(bare, training=training, repeat_action_probability=sticky, **ours)


class AtariGame(gym.Wrapper[np.ndarray, Any, Any, Any]):
    """One game; observations are the last `stack` frames, uint8 [4, 84, 84] with the newest last, unless set otherwise.

    Frames have `screen_size` pixels a side, and three planes each where they are not `grayscale`. An action is held
    for `frameskip` frames, and each of them repeats the one before with `repeat_action_probability` (Machado et al.,
    2018). A frame is the brighter of the last two, pixel by pixel, since sprites take turns. A game begins with up to
    `noop_max` frames of nothing, and every life with FIRE where there is such an action and `fire_at_start`.

    In training, rewards are their sign and a life lost is terminal: the next episode goes on with the same game. Else
    games are whole and rewards raw. The limit of frames is ALE's own, `max_num_frames_per_episode`, and truncates.
    """

    def __init__(
        self, env: gym.Env[Any, Any], *, training: bool = False, frameskip: int = 4,
        repeat_action_probability: float = 0.0, noop_max: int = 30, stack: int = 4, screen_size: int = 84,
        grayscale: bool = True, fire_at_start: bool = True, clip_rewards: bool = True,
        terminal_on_life_loss: bool = True,
    ) -> None:  # fmt: skip
        import ale_py

        super().__init__(env)
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(f"an Atari game is preprocessed for Discrete actions, got {env.action_space}")
        counts = {"frameskip": (frameskip, 1), "noop_max": (noop_max, 0), "stack": (stack, 1)}
        for name, (count, least) in {**counts, "screen_size": (screen_size, 1)}.items():
            _require(name, count, type(count) is int and count >= least, f"an integer of at least {least}")
        sticky, is_number = repeat_action_probability, type(repeat_action_probability) in (int, float)
        _require("repeat_action_probability", sticky, is_number and 0 <= sticky < 1, "at least 0 and below 1")
        switches = {"grayscale": grayscale, "fire_at_start": fire_at_start, "clip_rewards": clip_rewards}
        for name, value in {**switches, "terminal_on_life_loss": terminal_on_life_loss}.items():
            _require(name, value, isinstance(value, bool), "true or false")
        game: Any = env.unwrapped
        meanings = game.get_action_meanings()
        self._stack, self._planes = stack, 1 if grayscale else 3
        shape = (stack * self._planes, screen_size, screen_size)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self._ale, self._actions = game.ale, [getattr(ale_py.Action, meaning) for meaning in meanings]
        self._opening = meanings.index("FIRE") if fire_at_start and "FIRE" in meanings else NOOP
        self._shrink = AreaAverage(game.ale.getScreenDims(), (screen_size, screen_size))
        self._frameskip, self._sticky, self._noop_max = frameskip, sticky, noop_max
        self._clips, self._lives_end = training and clip_rewards, training and terminal_on_life_loss
        env.reset()
        self._start = game.ale.cloneState()  # the same for every seed, and loading the game for each takes long
        self._rng, self._tape = np.random.default_rng(), bytearray()
        self._frames = np.zeros(self.observation_space.shape, np.uint8)
        self._held, self._lives, self._is_between_lives = NOOP, 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the game's next life where one has just been lost in training (whatever the seed), else a new game."""
        if not self._is_between_lives:
            if seed is not None:
                self._rng = np.random.default_rng(seed)
            self._rewind()
            self._held = NOOP
            for _ in range(self._rng.integers(self._noop_max, endpoint=True)):
                self._act(NOOP)
        self._is_between_lives = False
        _, frame = self._hold(self._opening, surely=True)
        self._frames = np.tile(frame, (self._stack, 1, 1))
        self._lives = self._ale.lives()
        return self._frames, self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, frame = self._hold(int(action))
        lost = 0 < self._ale.lives() < self._lives  # some games show no life left a while before they are over
        if lost and not self._lives_end and self._opening != NOOP:
            # Who was trained with lives that begin by themselves may never press FIRE, and would wait for ever.
            more, frame = self._hold(self._opening, surely=True)
            reward += more
        self._lives = self._ale.lives()
        self._frames = np.concatenate([self._frames[self._planes :], frame])
        over, cut = self._ale.game_over(with_truncation=False), self._ale.game_truncated()
        terminal = over or (lost and self._lives_end)
        self._is_between_lives = terminal and not (over or cut)
        return self._frames, float(np.sign(reward)) if self._clips else reward, terminal, cut, self._info()

    @property
    def moves_by_planes(self) -> bool:
        """Whether a step brings one new plane, so that a stack is the one before less its oldest."""
        return self._planes == 1

    def tape(self) -> np.ndarray:
        """The actions of all frames of this game; ALE would hang, or worse, on a damaged copy of its own memory."""
        return np.frombuffer(bytes(self._tape), np.uint8)

    def memory(self) -> np.ndarray:
        """What the console holds in its 128 bytes: two games at the same point of the same tape hold the same."""
        return np.array(self._ale.getRAM())

    def play_tape(self, tape: np.ndarray, memory: np.ndarray) -> None:
        """Bring the console to where it was; what is seen and remembered of the game is saved beside it."""
        if tape.max(initial=0) >= len(self._actions):
            raise ValueError(f"its game has {len(self._actions)} actions, and action {tape.max()} was saved")
        self._rewind()
        for action in tape.tolist():
            self._press(action)
        if not np.array_equal(self.memory(), memory):
            raise ValueError("its game, played again, came to another point")

    def _hold(self, action: int, *, surely: bool = False) -> tuple[float, np.ndarray]:
        """The reward of an action over all its frames, and the planes seen after it; `surely` none of them sticks."""
        reward, screens = 0.0, []
        if surely:
            self._held = action
        for left in reversed(range(self._frameskip)):
            reward += self._press(action) if surely else self._act(action)
            over = self._ale.game_over()
            if left < 2 or over:
                screens.append(self._screen())
            if over:
                break
        return reward, self._shrink(np.maximum.reduce(screens))

    def _screen(self) -> np.ndarray:
        """The planes of what is on the screen, [planes, height, width]."""
        if self._planes == 1:
            return self._ale.getScreenGrayscale()[None]
        return np.moveaxis(self._ale.getScreenRGB(), -1, 0)

    def _act(self, action: int) -> float:
        """One frame of the game."""
        if self._sticky and self._rng.random() < self._sticky:
            action = self._held
        self._held = action
        return self._press(action)

    def _press(self, action: int) -> float:
        reward = float(self._ale.act(self._actions[action]))
        self._tape.append(action)
        return reward

    def _rewind(self) -> None:
        self._ale.restoreState(self._start)
        self._tape.clear()

    def _info(self) -> dict[str, Any]:
        return {"lives": self._lives, "episode_frame_number": self._ale.getEpisodeFrameNumber()}


class AreaAverage:
    """Pictures [..., height, width] made smaller: a new pixel is the mean of its area, exact before it is rounded."""

    def __init__(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        (rows, self._area_rows), (columns, self._area_columns) = map(_overlaps, old, new)
        self._rows, self._columns = rows, columns.T.copy()

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        # Sums of whole numbers below 2^24, which float32 holds exactly: no order of additions changes the result.
        sums = self._rows @ picture.astype(np.float32) @ self._columns
        return np.rint(sums / np.float32(self._area_rows * self._area_columns)).astype(np.uint8)


def _overlaps(old: int, new: int) -> tuple[np.ndarray, int]:
    """How much of each old pixel [new, old] lies in each new one, in whole parts, and how many parts a new one has."""
    part = math.gcd(old, new)
    width, each = old // part, new // part  # of a new pixel and of an old one
    starts, pixels = width * np.arange(new)[:, None], each * np.arange(old)
    shared = np.minimum(starts + width, pixels + each) - np.maximum(starts, pixels)
    return np.maximum(shared, 0).astype(np.float32), width


def _require(option: str, value: Any, fits: bool, allowed: str) -> None:
    if not fits:
        raise ValueError(f"{option} must be {allowed}, got {value}")
