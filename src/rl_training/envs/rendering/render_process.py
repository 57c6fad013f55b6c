"""Renders recorded MuJoCo episodes in a process of their own, because an OpenGL driver can crash its process.

Mesa's software renderer does so on ARM in a process that has used several gigabytes of addresses: LLVM may place the
code and the constants of a shader more than 4 GB apart, which is beyond the reach of the instruction that loads them.
"""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.creation.making import EnvFactory, make_env
from rl_training.envs.pools.group import close_env
from rl_training.envs.pools.worker_process import IGNORED_SIGNALS, leave_signals_to_parent
from rl_training.envs.rendering.frames import Camera, Clip, VideoError, described, env_name, has_opengl
from rl_training.processes import describe_exit, hidden_from, kill_with_starter, starter_variable
from rl_training.types import EnvSpec

POLL_SECONDS = 0.2
LONGEST_SECONDS = 3600.0  # of one video
CODE = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve({descriptor})"


class RendererDied(VideoError):
    """The process that renders has ended, so one video is lost."""


@dataclass
class Take:
    """One episode to render: its reset, its actions, and its last observation."""

    number: int
    limit: int  # frames
    options: dict[str, Any] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    last_obs: Any = None


class Rendered(NamedTuple):
    clips: list[Clip]
    notes: set[str]  # for the user
    error: VideoError | None


class Recorder(gym.Wrapper[Any, Any, Any, Any]):
    """Records the episodes for which `take` returns a take."""

    def __init__(self, env: gym.Env[Any, Any], take: Callable[[int], Take | None]) -> None:
        super().__init__(env)
        self._next_take, self._episode = take, -1
        self._take: Take | None = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        result = super().reset(**options)
        self._episode += 1
        self._take = self._next_take(self._episode)
        if self._take is not None:
            self._take.options, self._take.last_obs = options, deepcopy(result[0])
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = deepcopy(action)  # before an environment that changes its argument
        result = super().step(action)
        if self._take is not None:
            self._take.actions.append(taken)
            self._take.last_obs = deepcopy(result[0])
        return result


class RenderProcess:
    """Plays episodes again in a new process, in an environment of its own, and renders them."""

    def __init__(self, source: EnvFactory, *, like: EnvSpec | None, max_steps: int) -> None:
        self.make = partial(_make, source, like, max_steps)
        self._source = source

    def is_for(self, env: gym.Env[Any, Any]) -> bool:
        """Whether an OpenGL driver renders this environment, and another process may create it."""
        if not hasattr(env.unwrapped, "mujoco_renderer") or not has_opengl() or isinstance(self._source.env, LentEnv):
            return False
        try:
            ForkingPickler.dumps(self.make)
        except Exception:  # whatever pickling raises for objects of the user
            return False
        return True

    def render(self, takes: Sequence[Take], watch: Callable[[], None]) -> Rendered:
        """Returns the frames; `watch` is called while it waits. Raises `RendererDied`."""
        pipe, process = self._start()
        try:
            with pipe:
                rendered = self._reply(pipe, process, takes, watch)
        finally:
            process.kill()
            process.wait()
        # A class of the running script, or an id that it has registered, is unknown in other processes.
        return render(self.make(), takes) if rendered is None else rendered

    def _start(self) -> tuple[Connection, subprocess.Popen[bytes]]:
        pipe, child_end = multiprocessing.Pipe()
        code = CODE.format(module=__name__, path=sys.path, descriptor=child_end.fileno())
        with child_end, hidden_from(*IGNORED_SIGNALS):
            try:
                return pipe, subprocess.Popen(
                    [sys.executable, "-c", code], pass_fds=[child_end.fileno()], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **starter_variable()},
                )  # fmt: skip
            except OSError as error:
                pipe.close()
                raise RendererDied(f"{self._source} could not be rendered: no process for it: {error}") from error

    def _reply(
        self, pipe: Connection, process: subprocess.Popen[bytes], takes: Sequence[Take], watch: Callable[[], None]
    ) -> Rendered | None:
        with suppress(OSError):  # `recv` reports a dead process
            pipe.send((self.make, takes))
        deadline = time.monotonic() + LONGEST_SECONDS
        while not pipe.poll(POLL_SECONDS):
            watch()
            if time.monotonic() > deadline:
                raise RendererDied(f"{self._source} was not rendered within {LONGEST_SECONDS:.0f} seconds")
        try:
            reply: Rendered | None = pipe.recv()
        except (EOFError, OSError) as error:
            end = describe_exit(process.wait())
            raise RendererDied(f"{self._source} could not be rendered: its process {end}") from error
        return reply


def serve(descriptor: int) -> None:
    """Runs in the new process. The reply is None if it cannot create the environment."""
    kill_with_starter()
    leave_signals_to_parent()
    pipe = Connection(descriptor)
    try:
        make, takes = pipe.recv()
        env = make()
    except Exception:
        pipe.send(None)
        return
    pipe.send(render(env, takes))


def render(env: gym.Env[Any, Any], takes: Sequence[Take]) -> Rendered:
    """Plays episodes again, renders them and closes the environment."""
    rendered, errors = Rendered([], set(), None), list[VideoError]()
    for take in takes:
        clip = Clip(take.number, take.limit)
        rendered.clips.append(clip)
        try:
            repeated = _play(env, take, clip, errors.append, rendered.notes.add)
        except Exception as error:
            errors.append(VideoError(described(error, env)))
            break
        if not repeated:
            rendered.notes.add(f"{env_name(env)} plays another episode from the same seed, which the video shows")
    close_env(env)
    return rendered._replace(error=next(iter(errors), None))


def _play(
    env: gym.Env[Any, Any], take: Take, clip: Clip, failed: Callable[[VideoError], None], noted: Callable[[str], None]
) -> bool:
    """Returns whether the episode ends at the same step with the same observation."""
    camera = Camera(env, lambda _: clip, failed, noted)
    obs, played, ended = camera.reset(**take.options)[0], 0, False
    while not ended and played < len(take.actions):
        obs, _, terminated, truncated, _ = camera.step(take.actions[played])
        played, ended = played + 1, terminated or truncated
    return played == len(take.actions) and np.array_equal(obs, take.last_obs)


def _make(source: EnvFactory, like: EnvSpec | None, max_steps: int) -> gym.Env[Any, Any]:
    return TimeLimit(make_env(source, like=like), max_steps)
