"""Renders environments to images, without a display."""

import ctypes
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rl_training.envs.rendering.mujoco_sketch import Sketch
from rl_training.messages import describe_error

MODE = "rgb_array"
FRAMES_PER_SECOND = 30  # of a video, about; faster environments skip frames
MUJOCO_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}  # values of MUJOCO_GL that need no display
SKETCHED = (
    "is drawn in simple shapes, because MuJoCo has no OpenGL library here that needs no display; for its own pictures "
    "run: apt-get install libegl1 libgl1-mesa-dri"
)


class VideoError(ValueError):
    """No video can be made of an environment, for a reason that the user can change."""


def prepare_rendering() -> None:
    """Chooses drivers that need no display, unless the user has chosen others."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # of pygame
    if sys.platform == "linux" and "MUJOCO_GL" not in os.environ:
        backend = next((name for name, library in MUJOCO_LIBRARIES.items() if _loads(library)), None)
        if backend is not None:
            os.environ["MUJOCO_GL"] = backend


def has_opengl() -> bool:
    """Whether MuJoCo may find a driver to render with; on Linux without a display this is EGL or OSMesa."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("MUJOCO_GL", "DISPLAY"))


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


class Frame(NamedTuple):
    """One compressed image, with its step and the return so far."""

    data: bytes
    shape: tuple[int, ...]
    step: int
    return_: float

    def image(self) -> np.ndarray:
        return np.frombuffer(zlib.decompress(self.data), np.uint8).reshape(self.shape)


class Clip:
    """The frames of one episode, up to `limit`."""

    def __init__(self, number: int, limit: int) -> None:
        self.number, self.limit = number, limit
        self.frames: list[Frame] = []

    def add(self, image: np.ndarray, step: int, return_: float) -> None:
        data = zlib.compress(np.ascontiguousarray(image).tobytes(), 1)
        self.frames.append(Frame(data, image.shape, step, return_))


class Camera(gym.Wrapper[Any, Any, Any, Any]):
    """Records the episodes for which `clip` returns a clip, until one returns None.

    The episodes are the same as without it. An error in rendering ends the recording and is passed to `failed`; a
    remark for the user is passed to `noted`.
    """

    def __init__(
        self, env: gym.Env[Any, Any], clip: Callable[[int], Clip | None], failed: Callable[[VideoError], None],
        noted: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(env)
        self._next_clip, self._failed, self._noted = clip, failed, noted
        self._sketch: Sketch | None = None
        self._clip: Clip | None = None
        self._episode, self._taken, self._return = -1, 0, 0.0
        self._stride = max(1, round(steps_per_second(env) / FRAMES_PER_SECOND))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        result = super().reset(**options)
        self._episode, self._taken, self._return = self._episode + 1, 0, 0.0
        self._clip = self._next_clip(self._episode)
        self._capture()
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self._clip is not None:
            self._taken, self._return = self._taken + 1, self._return + float(reward)
            if terminated or truncated or not self._taken % self._stride:
                self._capture()
        return obs, reward, terminated, truncated, info

    def _capture(self) -> None:
        if self._clip is None:
            return
        if len(self._clip.frames) >= self._clip.limit:
            self._clip = None
            return
        try:
            self._clip.add(self._image(), self._taken, self._return)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a renderer may raise anything
            self._clip = None
            self._failed(error if isinstance(error, VideoError) else VideoError(described(error, self)))

    def _image(self) -> np.ndarray:
        if self.render_mode != MODE:
            modes = ", ".join(map(str, self.metadata.get("render_modes") or ())) or "none"
            raise VideoError(
                f"{env_name(self)} was not created with render_mode={MODE!r}, which a video needs (its render modes: "
                f"{modes}); add the mode to the environment, or pass one that has it"
            )
        image = self._sketched() if hasattr(self.unwrapped, "mujoco_renderer") else self.render()
        if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            got = f"{image.dtype} of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            raise VideoError(f"`render` of {env_name(self)} must return uint8 [height, width, 3], got {got}")
        return image

    def _sketched(self) -> Any:
        """Renders a MuJoCo scene, or draws it if there is no OpenGL."""
        if self._sketch is None and has_opengl():
            with suppress(Exception):  # the library is there, but no driver
                return self.render()
        if self._sketch is None:
            self._sketch = Sketch(self.unwrapped)
        self._noted(f"{env_name(self)} {SKETCHED}")
        return self._sketch.render()


def steps_per_second(env: gym.Env[Any, Any]) -> float:
    speed = env.metadata.get("render_fps")
    return float(speed) if isinstance(speed, int | float) and speed > 0 else float(FRAMES_PER_SECOND)


def env_name(env: gym.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def described(error: BaseException, env: gym.Env[Any, Any]) -> str:
    """Describes an error in rendering, with the extra that is missing."""
    sentence = f"{env_name(env)} could not be rendered: {describe_error(error)}"
    missing = isinstance(error, (gym.error.DependencyNotInstalled, ImportError))
    return f'{sentence}; run: pip install "rl-training[video]"' if missing else sentence
