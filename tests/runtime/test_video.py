"""Videos of evaluation episodes: files that play, unchanged figures, and one sentence where none is possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs.creation.making import spec_of
from rl_training.envs.rendering.frames import MUJOCO_LIBRARIES, VideoError, prepare_rendering
from rl_training.experiment.run import run_training
from rl_training.runtime.callbacks.logging import TIME_FIELDS
from rl_training.runtime.evaluation import Evaluation, evaluate
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.video import MAX_FRAMES, Video

imageio = pytest.importorskip("imageio.v3")
pytest.importorskip("imageio_ffmpeg")


@pytest.fixture(autouse=True)
def _drivers_are_chosen_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SDL_VIDEODRIVER", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def play(env_id: Any, video: Video | None, *, episodes: int = 4, max_steps: int = 20) -> Evaluation:
    policy = RandomPolicy(spec_of(env_id))
    return evaluate(
        policy, env_id, episodes=episodes, seed=3, deterministic=False, max_steps=max_steps, video=video, warn=ignore
    )


def ignore(message: str) -> None: ...


def frames_of(path: Path) -> np.ndarray:
    return np.asarray(imageio.imread(path))


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_shows_the_first_episodes_and_changes_no_figure(tmp_path: Path, suffix: str):
    path = tmp_path / "new" / f"cartpole{suffix}"
    with_video, without = play("CartPole-v1", Video(path, episodes=2)), play("CartPole-v1", None)
    assert with_video == without
    frames = frames_of(path)
    assert frames.shape[1:] == (424, 600, 3)  # 400 by 600, and the text
    assert len(np.unique(frames[:, :400].reshape(len(frames), -1).sum(1))) > 5
    assert frames[-1][400:].max() > 200, "there is no text"
    assert list(path.parent.iterdir()) == [path]
    if (
        suffix == ".mp4"
    ):  # a .gif merges equal frames; 50 frames a second are shown as 25, and episodes end with a pause
        shown = [1 + -(-length // 2) for length in without.lengths[:2]]
        assert abs(len(frames) - sum(shown) - 2 * 12) <= 2


def test_a_long_video_is_cut(tmp_path: Path):
    assert MAX_FRAMES <= 3600
    video = Video(tmp_path / "short.mp4", episodes=1, max_frames=6)
    play("Pendulum-v1", video, episodes=1, max_steps=50)
    assert 6 <= len(frames_of(video.path)) <= 6 + 15


@pytest.mark.parametrize(
    ("env_id", "size"), [("ALE/Breakout-v5", (420, 320)), ("LunarLander-v3", (400, 600)), ("Pendulum-v1", (500, 500))]
)
def test_a_game_is_shown_on_its_own_screen(tmp_path: Path, env_id: str, size: tuple[int, int]):
    pytest.importorskip("ale_py" if env_id.startswith("ALE") else "pygame")
    play(env_id, Video(tmp_path / "game.mp4"), episodes=1, max_steps=12)
    frames = frames_of(tmp_path / "game.mp4")
    assert frames.shape[1:] == (size[0] + 24, size[1], 3)
    assert (frames[0] != frames[-1]).any()
    colours = frames[-1][: size[0]].astype(int)
    if env_id != "Pendulum-v1":
        assert np.ptp(colours, axis=-1).max() > 50, "the picture is grey"


RENDER_IN_FULL_MEMORY = """
import ctypes
import mmap

from rl_training.envs.creation.making import spec_of
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.video import Video

policy = RandomPolicy(spec_of("Hopper-v5"))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size):
    return libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


# Addresses are free in small holes that are 5 GB apart only.
size = 5 << 30
blocks = [reserve(size) for _ in range(64)]
for block in blocks:
    libc.munmap(block + (1 << 20), 1 << 16)
for piece in (1 << 30, 1 << 26, 1 << 22, 1 << 18, 1 << 16, 1 << 14, 1 << 12):
    while max(blocks) + size < (found := reserve(piece)) < 1 << 63:
        pass
    libc.munmap(found, piece)
evaluate(policy, "Hopper-v5", episodes=1, seed=3, deterministic=False, max_steps=8, video=Video("hopper.mp4"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reserves addresses as Linux does")
def test_mujoco_is_rendered_without_a_display_where_a_driver_would_crash(tmp_path: Path):
    """Mesa's software renderer crashes there on ARM."""
    pytest.importorskip("mujoco")
    played = subprocess.run(
        [sys.executable, "-c", RENDER_IN_FULL_MEMORY], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert played.returncode == 0, played.stderr
    assert "another episode" not in played.stderr
    frames = frames_of(tmp_path / "hopper.mp4")
    assert frames.shape[1:] == (504, 480, 3)
    assert (frames[0] != frames[-1]).any()


@pytest.mark.parametrize(("present", "chosen"), [(("egl", "osmesa"), "egl"), (("osmesa",), "osmesa"), ((), None)])
def test_the_driver_of_mujoco_is_the_first_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, present: Any, chosen: Any
):
    libraries = [MUJOCO_LIBRARIES[name] for name in present]
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr("rl_training.envs.rendering.frames._loads", lambda library: library in libraries)
    monkeypatch.setattr(sys, "platform", "linux")
    prepare_rendering()
    assert os.environ.get("MUJOCO_GL") == chosen
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    prepare_rendering()
    assert os.environ["MUJOCO_GL"] == "glfw"


@pytest.mark.parametrize("env_id", [
    "Hopper-v5", "Reacher-v5", pytest.param("Ant-v5", marks=pytest.mark.slow),
    pytest.param("InvertedPendulum-v5", marks=pytest.mark.slow),
])  # fmt: skip
def test_without_opengl_mujoco_is_drawn_in_simple_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env_id: str):
    pytest.importorskip("mujoco")
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr("rl_training.envs.rendering.frames._loads", lambda library: False)
    notes: list[str] = []
    arguments: Any = {"episodes": 2, "seed": 3, "deterministic": False, "max_steps": 16}
    policy, video = RandomPolicy(spec_of(env_id)), Video(tmp_path / "drawn.mp4")
    drawn = evaluate(policy, env_id, **arguments, video=video, warn=notes.append)
    assert drawn == evaluate(policy, env_id, **arguments, warn=ignore)
    (note,) = [each for each in notes if "simple shapes" in each]
    assert note.startswith(f"{env_id} is drawn in simple shapes, because MuJoCo has no OpenGL library here")
    frames = frames_of(tmp_path / "drawn.mp4")
    assert frames.shape[1:] == (504, 480, 3)
    assert (frames[0, :480] != frames[-1, :480]).any()
    assert len(np.unique(frames[0, :480].reshape(-1, 3), axis=0)) > 3


def test_a_driver_that_fails_is_replaced_by_a_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mujoco")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "999")
    video = Video(tmp_path / "drawn.gif")
    play("Hopper-v5", video, episodes=1, max_steps=8)
    assert frames_of(tmp_path / "drawn.gif").shape[1:] == (504, 480, 3)
    (note,) = video.notes
    assert note.startswith("Hopper-v5 is drawn in simple shapes")


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "Catch-v0",
            r"Catch-v0 was not created with render_mode='rgb_array', which a video needs \(its render modes: none",
        )
    ],
)
def test_an_environment_without_pictures_is_refused(tmp_path: Path, env_id: str, message: str):
    with pytest.raises(VideoError, match=message):
        play(env_id, Video(tmp_path / "none.mp4"))
    assert list(tmp_path.iterdir()) == []


class WithoutInit(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, True, False, {}


def test_a_class_that_takes_no_arguments_is_refused_like_one_without_the_render_mode(tmp_path: Path):
    with pytest.raises(VideoError, match="WithoutInit was not created with render_mode='rgb_array'"):
        play(WithoutInit, Video(tmp_path / "none.mp4"))


@pytest.mark.parametrize(
    ("path", "episodes", "message"),
    [("a.avi", 1, "must end in .mp4 or .gif, got a.avi"), ("a.mp4", 0, "at least 1 episode, got 0")],
)
def test_a_wrong_video_is_refused(path: str, episodes: int, message: str):
    with pytest.raises(ValueError, match=message):
        Video(path, episodes=episodes)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rl_training.runtime.video.find_spec", lambda module: None)
    with pytest.raises(ImportError, match=r'pip install "rl-training\[video\]"'):
        Video(tmp_path / "a.mp4")


def train(directory: Path, **config: Any) -> list[str]:
    warnings: list[str] = []
    settings: Any = {
        "algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 128, "output_dir": str(directory),
        "eval_interval": 32, "eval_episodes": 2, "log_interval": 32,
        "algo_kwargs": {"num_steps": 32, "batch_size": 32, "hidden_sizes": [8], "epochs": 1}, **config,
    }  # fmt: skip
    run_training(settings, warn=warnings.append)
    return warnings


def log_of(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIME_FIELDS} for row in rows]


def test_training_writes_a_video_at_each_interval_and_learns_the_same(tmp_path: Path):
    assert train(tmp_path / "with", record_video_interval=64) == []
    assert train(tmp_path / "without") == []
    names = sorted(path.name for path in (tmp_path / "with" / "videos").iterdir())
    assert names == ["step_000000064.mp4", "step_000000128.mp4"]
    assert len(frames_of(tmp_path / "with" / "videos" / names[0])) > 3
    assert log_of(tmp_path / "with") == log_of(tmp_path / "without")
    learners = [tmp_path / name / "checkpoints" / "step_000000128" for name in ("with", "without")]
    first, second = (sorted(path.glob("*.safetensors")) for path in learners)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first


def test_a_renderer_that_fails_is_one_warning_and_training_goes_on(tmp_path: Path):
    (warning,) = train(tmp_path / "run", env_id="Catch-v0", record_video_interval=32)
    assert warning.startswith("training continues without videos: Catch-v0 was not created with")
    assert not (tmp_path / "run" / "videos").exists()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "finished"


def test_videos_without_evaluations_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="record_video_interval needs evaluations; set env_id and an eval_interval"):
        train(tmp_path / "run", record_video_interval=32, eval_interval=0)


def test_a_fresh_run_has_no_old_videos(tmp_path: Path):
    train(tmp_path / "run", record_video_interval=64)
    (tmp_path / "run" / "videos" / "step_000000001.mp4").write_bytes(b"old")
    settings: Any = {"algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 32, "output_dir": str(tmp_path / "run"),
                     "eval_interval": 0, "algo_kwargs": {"num_steps": 32, "batch_size": 32}}  # fmt: skip
    run_training(settings, fresh=True, warn=ignore)
    assert not (tmp_path / "run" / "videos").exists()
