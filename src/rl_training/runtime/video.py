"""Videos of evaluation episodes, as .mp4 or .gif, with the return written below the picture."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.rendering.frames import (
    FRAMES_PER_SECOND,
    Camera,
    Clip,
    VideoError,
    prepare_rendering,
    steps_per_second,
)
from rl_training.envs.rendering.render_process import Recorder, RendererDied, RenderProcess, Take
from rl_training.messages import Warn, describe_system_error
from rl_training.runtime.checkpoints.format import step_name
from rl_training.runtime.state import TrainerState

FORMATS = (".mp4", ".gif")
EPISODES = 3
MAX_FRAMES = 3_600  # of a video: two minutes
SMALLEST_WIDTH = 320  # smaller pictures are enlarged, so that the text fits
TEXT_HEIGHT = 24
LOSSES = 3  # lost videos, with the process that rendered them, after which a run records no more
PAUSE = 0.5  # seconds after an episode


class Video:
    """Records the first `episodes` of an evaluation and writes them to one file."""

    def __init__(self, path: Path | str, *, episodes: int = EPISODES, max_frames: int = MAX_FRAMES) -> None:
        self.path, self.episodes = Path(path), episodes
        if self.path.suffix.lower() not in FORMATS:
            raise ValueError(f"a video must end in .mp4 or .gif, got {self.path}")
        if self.path.is_dir():
            raise ValueError(f"a video must be a file, but {self.path} is a folder")
        if episodes < 1:
            raise ValueError(f"a video needs at least 1 episode, got {episodes}")
        self.error: Exception | None = None
        self.notes: set[str] = set()  # for the user
        self._limit = max_frames
        self._clips: dict[int, Clip] = {}
        self._takes: dict[int, Take] = {}
        self._renderer: RenderProcess | None = None
        self._fps = float(FRAMES_PER_SECOND)
        require_encoder(self.path)
        prepare_rendering()

    def cameras(
        self, width: int, played: int, renderer: RenderProcess
    ) -> Callable[[int, gym.Env[Any, Any]], gym.Env[Any, Any]]:
        """Returns a function that wraps environment `i` of `width`, which plays the episodes i, i + width, …

        The environments that `renderer` is for are rendered by it afterwards; the others here, at each step.
        """
        self.episodes, self._renderer = min(self.episodes, played), renderer
        limit = max(2, self._limit // self.episodes)

        def wrapped(row: int, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
            if row >= self.episodes:
                return env
            if row == 0:
                speed = steps_per_second(env)
                self._fps = speed / max(1, round(speed / FRAMES_PER_SECOND))

            def take(episode: int) -> Take | None:
                number = row + episode * width
                return self._takes.setdefault(number, Take(number, limit)) if number < self.episodes else None

            def clip(episode: int) -> Clip | None:
                number = row + episode * width
                if number >= self.episodes or self.error is not None:
                    return None
                return self._clips.setdefault(number, Clip(number, limit))

            return Recorder(env, take) if renderer.is_for(env) else Camera(env, clip, self.fail, self.notes.add)

        return wrapped

    def fail(self, error: Exception) -> None:
        self.error = self.error or error

    def require(self) -> None:
        """Raises the error that has ended the recording, if there is one."""
        if self.error is not None:
            raise self.error

    def save(self, warn: Warn, watch: Callable[[], None] = lambda: None) -> None:
        """Writes the file, or nothing if it could not be recorded. `watch` is called while episodes are rendered."""
        if self._takes and self._renderer is not None:
            self._render(self._renderer, watch)
        self.require()
        if self.error is not None:
            return
        for note in sorted(self.notes):
            warn(note)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f".{self.path.stem}-{os.getpid()}{self.path.suffix}")
            try:
                (_write_gif if self.path.suffix.lower() == ".gif" else _write_mp4)(partial, self._pictures(), self._fps)
                os.replace(partial, self.path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            self.fail(VideoError(f"the video {self.path} could not be written: {describe_system_error(error)}"))
            self.require()

    def _render(self, renderer: RenderProcess, watch: Callable[[], None]) -> None:
        try:
            rendered = renderer.render([self._takes[number] for number in sorted(self._takes)], watch)
        except RendererDied as error:
            self.fail(error)
            return
        self._clips = {clip.number: clip for clip in rendered.clips}
        self.notes |= rendered.notes
        if rendered.error is not None:
            self.fail(rendered.error)

    def _pictures(self) -> Iterator[np.ndarray]:
        draw = Captions()
        for number in sorted(self._clips):
            for frame in self._clips[number].frames:
                text = f"episode {number + 1}   step {frame.step:,}   return {frame.return_:,.6g}"
                picture = draw(frame.image(), text)
                yield picture
            yield from [picture] * round(PAUSE * self._fps)


class TrainingVideos:
    """Starts a video at each evaluation that has crossed a multiple of `interval` steps since the one before.

    If a video fails, one warning is printed and training continues without videos. The death of a process that renders
    costs one video, up to `LOSSES` times.
    """

    def __init__(self, folder: Path, interval: int, warn: Warn) -> None:
        self.folder, self.interval, self.warn = folder, interval, warn
        self._is_off, self._losses = False, 0
        self._noted: set[str] = set()

    def next(self, state: TrainerState) -> Video | None:
        before = 0 if state.evaluation is None else state.evaluation["step"]
        if self._is_off or state.global_step // self.interval <= before // self.interval:
            return None
        try:
            return TrainingVideo(self.folder / f"{step_name(state.global_step)}.mp4", self._give_up, self._note)
        except ImportError as error:
            self._give_up(error)
            return None

    def _note(self, note: str) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self.warn(note)

    def _give_up(self, error: Exception) -> None:
        self._losses += isinstance(error, RendererDied)
        if isinstance(error, RendererDied) and self._losses < LOSSES:
            self.warn(f"training continues, and a video is missing: {error}")
        elif not self._is_off:
            self._is_off = True
            self.warn(f"training continues without videos: {error}")


class TrainingVideo(Video):
    """One episode; an error is reported instead of raised."""

    def __init__(self, path: Path, give_up: Callable[[Exception], None], note: Warn) -> None:
        super().__init__(path, episodes=1)
        self._give_up, self._note = give_up, note

    def save(self, warn: Warn, watch: Callable[[], None] = lambda: None) -> None:
        super().save(self._note, watch)

    def require(self) -> None:
        if self.error is not None:
            self._give_up(self.error)


class Captions:
    """Puts text below a picture. All results have the size of the first, in even numbers for the encoder."""

    def __init__(self) -> None:
        from PIL import ImageFont

        self._font, self._size = ImageFont.load_default(14), (0, 0)

    def __call__(self, image: np.ndarray, text: str) -> np.ndarray:
        from PIL import Image, ImageDraw

        height, width = image.shape[:2]
        if self._size == (0, 0):
            factor = math.ceil(SMALLEST_WIDTH / width)
            self._size = (width * factor + width * factor % 2, height * factor + height * factor % 2)
        picture = Image.new("RGB", (self._size[0], self._size[1] + TEXT_HEIGHT))
        shown = Image.fromarray(image)
        picture.paste(shown if shown.size == self._size else shown.resize(self._size, Image.Resampling.NEAREST))
        ImageDraw.Draw(picture).text((8, self._size[1] + 4), text, fill=(255, 255, 255), font=self._font)
        return np.asarray(picture)


def require_encoder(path: Path) -> None:
    """Raises ImportError if a package is missing."""
    modules = ("PIL", "imageio", "imageio_ffmpeg") if path.suffix.lower() == ".mp4" else ("PIL",)
    if any(find_spec(module) is None for module in modules):
        raise ImportError('a video needs imageio, imageio-ffmpeg and pillow: pip install "rl-training[video]"')


def _write_mp4(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    import imageio

    options: Any = {"codec": "libx264", "macro_block_size": 2, "ffmpeg_log_level": "error", "quality": 7}
    writer: Any = imageio.get_writer(path, format="FFMPEG", mode="I", fps=fps, **options)
    with writer:
        for picture in pictures:
            writer.append_data(picture)


def _write_gif(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    from PIL import Image

    images = (Image.fromarray(picture) for picture in pictures)
    next(images).save(path, save_all=True, append_images=images, duration=round(1000 / fps), loop=0)
