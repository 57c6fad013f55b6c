"""Standard preprocessing of Atari games: frame skip, small grey images, frame stack; without OpenCV."""

import math
from typing import Any

import gymnasium as gym
import numpy as np

OPTIONS = (  # of AtariGame that env_kwargs may set
    "frameskip", "noop_max", "stack", "screen_size", "grayscale", "fire_at_start", "clip_rewards",
    "terminal_on_life_loss",
)  # fmt: skip
NOOP = 0
SCREENS_PER_SECOND = 60  # of the console


def is_atari(env_id: str) -> bool:
    """Whether the id names a game of the Arcade Learning Environment (ALE)."""
    name = env_id.removeprefix("ale_py:")
    return name.startswith("ALE/") or name.endswith(("NoFrameskip-v0", "NoFrameskip-v4"))


def make_atari(env_id: str, *, training: bool = False, preprocess: bool = True, **options: Any) -> gym.Env[Any, Any]:
    """Creates an AtariGame, or the raw ALE environment if `preprocess` is false."""
    import ale_py

    gym.register_envs(ale_py)
    env_id = env_id.removeprefix("ale_py:")
    if env_id not in gym.registry:
        raise gym.error.UnregisteredEnv(f"there is no game {env_id!r}")  # gym.spec raises an error of another class
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # suppresses the start-up banner
    if not preprocess:
        return gym.make(env_id, disable_env_checker=True, **options)
    settings = {name: options.pop(name) for name in OPTIONS if name in options}
    for name in ("obs_type", "sound_obs"):
        if name in options:
            raise ValueError(f"{name} is an option of raw ALE games; set preprocess to false or remove {name}")
    sticky = options.pop("repeat_action_probability", gym.spec(env_id).kwargs["repeat_action_probability"])
    # AtariGame does both: ALE hides skipped frames, and a snapshot cannot save its generator of sticky actions.
    raw = gym.make(env_id, disable_env_checker=True, frameskip=1, repeat_action_probability=0.0, **options)
    return AtariGame(raw, training=training, repeat_action_probability=sticky, **settings)


class AtariGame(gym.Wrapper[np.ndarray, Any, Any, Any]):
    """A preprocessed game. Observations are the last `stack` frames, by default uint8 [4, 84, 84], newest last.

    - Frames have `screen_size` pixels a side, and three planes each if `grayscale` is false.
    - An action is repeated for `frameskip` frames; in each, the previous action is repeated instead with
      `repeat_action_probability` (sticky actions, Machado et al., 2018).
    - A frame is the pixel-wise maximum of the last two, because some sprites flicker.
    - A game starts with up to `noop_max` no-ops, and each life with FIRE if the game has it and `fire_at_start` is set.
    - In training, rewards are clipped to their sign and the loss of a life is terminal; the next episode continues
      the same game. In evaluation, episodes are whole games with raw rewards.
    - ALE truncates at `max_num_frames_per_episode`.
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
            raise ValueError(
                f"Atari preprocessing requires Discrete actions, got {env.action_space}; set continuous to false"
            )
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
        self.metadata = {**env.metadata, "render_fps": SCREENS_PER_SECOND / frameskip}
        self._ale, self._actions = game.ale, [getattr(ale_py.Action, meaning) for meaning in meanings]
        self._opening = meanings.index("FIRE") if fire_at_start and "FIRE" in meanings else NOOP
        self._shrink = AreaAverage(game.ale.getScreenDims(), (screen_size, screen_size))
        self._frameskip, self._sticky, self._noop_max = frameskip, sticky, noop_max
        self._clips, self._lives_end = training and clip_rewards, training and terminal_on_life_loss
        env.reset()
        self._start = game.ale.cloneState()  # equal for every seed, and faster than reloading the game
        self._rng, self._history = np.random.default_rng(), bytearray()
        self._frames = np.zeros(self.observation_space.shape, np.uint8)
        self._held, self._lives, self._is_between_lives = NOOP, 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the next life after the loss of one in training (ignoring the seed), else a new game."""
        if not self._is_between_lives:
            if seed is not None:
                self._rng = np.random.default_rng(seed)
            self._rewind()
            self._held = NOOP
            for _ in range(self._rng.integers(self._noop_max, endpoint=True)):
                self._sticky_frame(NOOP)
        self._is_between_lives = False
        _, frame = self._repeat(self._opening, sticky=False)
        self._frames = np.tile(frame, (self._stack, 1, 1))
        self._lives = self._ale.lives()
        return self._frames, self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, frame = self._repeat(int(action))
        lost = 0 < self._ale.lives() < self._lives  # some games show 0 lives before they end
        if lost and not self._lives_end and self._opening != NOOP:
            # A policy trained with automatic FIRE may never press it and would wait forever.
            fire_reward, frame = self._repeat(self._opening, sticky=False)
            reward += fire_reward
        self._lives = self._ale.lives()
        self._frames = np.concatenate([self._frames[self._planes :], frame])
        over, cut = self._ale.game_over(with_truncation=False), self._ale.game_truncated()
        terminal = over or (lost and self._lives_end)
        self._is_between_lives = terminal and not (over or cut)
        clipped = float(np.sign(reward)) if self._clips else reward
        return self._frames, clipped, terminal, cut, self._info()

    @property
    def stacks_single_planes(self) -> bool:
        """Whether each step adds exactly one plane to the stack."""
        return self._planes == 1

    def action_history(self) -> np.ndarray:
        """Actions of all frames of this game. Saved instead of ALE's state, which ALE restores without checks."""
        return np.frombuffer(bytes(self._history), np.uint8)

    def ram(self) -> np.ndarray:
        """The 128 bytes of the console's RAM, which verify a replayed game."""
        return np.array(self._ale.getRAM())

    def replay_actions(self, actions: np.ndarray, ram: np.ndarray) -> None:
        """Replays a game from its actions; raises ValueError if the final RAM differs."""
        if actions.max(initial=0) >= len(self._actions):
            raise ValueError(f"its game has {len(self._actions)} actions, but action {actions.max()} was saved")
        self._rewind()
        for action in actions.tolist():
            self._frame(action)
        if not np.array_equal(self.ram(), ram):
            raise ValueError("its replayed game reached a different state")

    def _repeat(self, action: int, *, sticky: bool = True) -> tuple[float, np.ndarray]:
        """Repeats an action for `frameskip` frames; returns the summed reward and the new planes."""
        reward, screens = 0.0, []
        if not sticky:
            self._held = action
        for left in reversed(range(self._frameskip)):
            reward += self._sticky_frame(action) if sticky else self._frame(action)
            over = self._ale.game_over()
            if left < 2 or over:
                screens.append(self._screen())
            if over:
                break
        return reward, self._shrink(np.maximum.reduce(screens))

    def _screen(self) -> np.ndarray:
        """The screen as [planes, height, width]."""
        if self._planes == 1:
            return self._ale.getScreenGrayscale()[None]
        return np.moveaxis(self._ale.getScreenRGB(), -1, 0)

    def _sticky_frame(self, action: int) -> float:
        if self._sticky and self._rng.random() < self._sticky:
            action = self._held
        self._held = action
        return self._frame(action)

    def _frame(self, action: int) -> float:
        reward = float(self._ale.act(self._actions[action]))
        self._history.append(action)
        return reward

    def _rewind(self) -> None:
        self._ale.restoreState(self._start)
        self._history.clear()

    def _info(self) -> dict[str, Any]:
        return {"lives": self._lives, "episode_frame_number": self._ale.getEpisodeFrameNumber()}


class AreaAverage:
    """Downscales images [..., height, width]: each new pixel is the mean of its area, rounded once.

    A new pixel covers few old ones, so a sum of them is faster than a matrix product. It also starts no threads, which
    would slow down the environments of other processes.
    """

    def __init__(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        (rows, area_rows), (columns, area_columns) = map(_overlaps, old, new)
        self._rows = [(index, weight[:, None]) for index, weight in _terms(rows)]
        self._columns, self._area = _terms(columns), np.float32(area_rows * area_columns)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        # Sums of integers below 2^24 are exact in float32, so the order of additions does not matter.
        lines: Any = sum(image[..., index, :] * weight for index, weight in self._rows)
        sums: Any = sum(lines[..., index] * weight for index, weight in self._columns)
        return np.rint(sums / self._area).astype(np.uint8)


def _terms(overlap: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Splits overlaps [new, old] into terms of a sum: for every new pixel the index of an old one, and its weight."""
    first, count = (overlap > 0).argmax(1), int((overlap > 0).sum(1).max())
    indices = [np.minimum(first + term, overlap.shape[1] - 1) for term in range(count)]
    pixels = np.arange(len(overlap))
    return [
        (index, np.where(first + term == index, overlap[pixels, index], np.float32(0)))
        for term, index in enumerate(indices)
    ]


def _overlaps(old: int, new: int) -> tuple[np.ndarray, int]:
    """Returns the integer overlap [new, old] of old and new pixels, and the size of a new pixel in the same units."""
    divisor = math.gcd(old, new)
    new_size, old_size = old // divisor, new // divisor
    new_starts, old_starts = new_size * np.arange(new)[:, None], old_size * np.arange(old)
    overlap = np.minimum(new_starts + new_size, old_starts + old_size) - np.maximum(new_starts, old_starts)
    return np.maximum(overlap, 0).astype(np.float32), new_size


def _require(option: str, value: Any, is_valid: bool, allowed: str) -> None:
    if not is_valid:
        raise ValueError(f"{option} must be {allowed}, got {value}")
