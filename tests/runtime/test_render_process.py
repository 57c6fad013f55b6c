"""Episodes that an OpenGL driver renders in a process of its own: the same video, and its crash costs one video."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.envs.creation.making import EnvFactory, spec_of
from rl_training.envs.interrupts import Interrupted
from rl_training.envs.rendering import render_process
from rl_training.envs.rendering.render_process import RendererDied, RenderProcess, Take
from rl_training.experiment.run import run_training
from rl_training.modules import approve
from rl_training.runtime.evaluation import Evaluation, evaluate
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.video import LOSSES, Video

pytest.importorskip("imageio_ffmpeg")
pytest.importorskip("pygame")

ENVS = """
import os
import signal
import time

from gymnasium.envs.classic_control import CartPoleEnv


class Drawn(CartPoleEnv):
    mujoco_renderer = None  # is rendered as if OpenGL drew it

    def render(self):
        if os.environ.get("RENDERING") == "crashes" and os.getpid() != int(os.environ["TRAINER"]):
            os.kill(os.getpid(), signal.SIGSEGV)
        if os.environ.get("RENDERING") == "hangs" and os.getpid() != int(os.environ["TRAINER"]):
            time.sleep(600)
        return super().render()


class Erratic(Drawn):
    def reset(self, **options):
        return super().reset(seed=os.getpid())
"""


@pytest.fixture(autouse=True)
def _environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "drawn_envs.py").write_text(ENVS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("TRAINER", str(os.getpid()))
    approve(["drawn_envs"])
    yield
    sys.modules.pop("drawn_envs", None)


def ignore(message: str) -> None: ...


def play(env: Any, video: Video, warn: Callable[[str], None] = ignore, **options: Any) -> Evaluation:
    settings: Any = {"episodes": 3, "seed": 3, "deterministic": False, "max_steps": 20, **options}
    return evaluate(RandomPolicy(spec_of("CartPole-v1")), env, **settings, video=video, warn=warn)


def test_the_video_is_the_same_as_one_rendered_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown = Video(tmp_path / "apart.mp4", episodes=2, max_frames=12)
    apart = play("drawn_envs:Drawn", shown)
    monkeypatch.setattr(RenderProcess, "is_for", lambda *_: False)
    here = Video(tmp_path / "here.mp4", episodes=2, max_frames=12)
    assert play("drawn_envs:Drawn", here) == apart
    assert shown.notes == here.notes == set()
    assert (tmp_path / "apart.mp4").read_bytes() == (tmp_path / "here.mp4").read_bytes()


class InThisFile(CartPoleEnv):
    mujoco_renderer = None


@pytest.mark.parametrize("kind", ["function", "registered here"])
def test_an_environment_that_other_processes_cannot_create_is_rendered_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    def create(**options: Any) -> InThisFile:
        return InThisFile(**options)

    monkeypatch.setitem(gym.registry, "Here-v0", gym.envs.registration.EnvSpec("Here-v0", create))
    env: Any = create if kind == "function" else "Here-v0"
    play(env, Video(tmp_path / "here.mp4", episodes=1))
    assert (tmp_path / "here.mp4").stat().st_size > 1000


def test_a_crash_is_an_error_of_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RENDERING", "crashes")
    with pytest.raises(RendererDied, match=r"^drawn_envs:Drawn could not be rendered: its process ended by SIGSEGV$"):
        play("drawn_envs:Drawn", Video(tmp_path / "none.mp4"))
    assert not (tmp_path / "none.mp4").exists()


def test_an_episode_that_cannot_be_repeated_is_reported(tmp_path: Path):
    notes: list[str] = []
    play("drawn_envs:Erratic", Video(tmp_path / "other.mp4", episodes=1), notes.append, max_steps=200)
    assert notes == ["Erratic plays another episode from the same seed, which the video shows"]


def test_a_stop_ends_the_process_that_renders(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RENDERING", "hangs")
    started, popen = list[Any](), subprocess.Popen

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    renderer = RenderProcess(EnvFactory("drawn_envs:Drawn", {"render_mode": "rgb_array"}), like=None, max_steps=9)
    deadline = time.monotonic() + 1.5

    def watch() -> None:
        if time.monotonic() > deadline:
            raise Interrupted

    with pytest.raises(Interrupted):
        renderer.render([Take(0, 9)], watch)
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_renderer_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RENDERING", "hangs")
    monkeypatch.setattr(render_process, "LONGEST_SECONDS", 1.0)
    renderer = RenderProcess(EnvFactory("drawn_envs:Drawn", {"render_mode": "rgb_array"}), like=None, max_steps=9)
    with pytest.raises(RendererDied, match="drawn_envs:Drawn was not rendered within 1 seconds"):
        renderer.render([Take(0, 9)], lambda: None)


def train(directory: Path, **config: Any) -> list[str]:
    warnings: list[str] = []
    settings: Any = {
        "algo": "ppo", "env_id": "drawn_envs:Drawn", "total_timesteps": 128, "output_dir": str(directory),
        "eval_interval": 32, "eval_episodes": 1, "eval_max_steps": 9, "log": [],
        "algo_kwargs": {"num_steps": 32, "batch_size": 32, "hidden_sizes": [8], "epochs": 1}, **config,
    }  # fmt: skip
    run_training(settings, warn=warnings.append)
    return [warning for warning in warnings if "video" in warning]


def weights(run: Path) -> list[bytes]:
    files = sorted((run / "checkpoints" / "step_000000128").glob("*.safetensors"))
    assert files
    return [path.read_bytes() for path in files]


def test_a_crash_costs_a_training_one_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert train(tmp_path / "without") == []
    monkeypatch.setenv("RENDERING", "crashes")
    (warning,) = train(tmp_path / "with", record_video_interval=96)
    cause = "drawn_envs:Drawn could not be rendered: its process ended by SIGSEGV"
    assert warning == f"training continues, and a video is missing: {cause}"
    assert not (tmp_path / "with" / "videos").exists()
    assert weights(tmp_path / "with") == weights(tmp_path / "without")


def test_a_renderer_that_never_starts_costs_a_training_its_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    train(tmp_path / "without")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    warnings = train(tmp_path / "with", record_video_interval=32)
    assert len(warnings) == LOSSES
    assert "could not be rendered: no process for it: [Errno 2] No such file" in warnings[0]
    assert warnings[-1].startswith("training continues without videos: drawn_envs:Drawn could not be rendered")
    assert weights(tmp_path / "with") == weights(tmp_path / "without")


def test_a_training_has_its_videos(tmp_path: Path):
    assert train(tmp_path / "run", record_video_interval=96) == []
    assert [path.name for path in (tmp_path / "run" / "videos").iterdir()] == ["step_000000096.mp4"]
