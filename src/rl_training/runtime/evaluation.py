"""Evaluates a policy in fresh environments with fixed seeds, without side effects on training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rl_training import streams
from rl_training.data import normalized_score
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.pools.group import Episode
from rl_training.envs.pools.pool import EnvPool
from rl_training.envs.rendering.frames import MODE
from rl_training.envs.rendering.render_process import RenderProcess
from rl_training.envs.successes import record_successes
from rl_training.messages import Warn, print_warning
from rl_training.runtime.memory import Memory
from rl_training.runtime.state import checked_action, finite_actions
from rl_training.runtime.video import Video
from rl_training.types import EnvSpec, Policy

MAX_STEPS = 1_000_000  # of an episode
UNENDED_STEPS = 30_000  # without the end of an episode, before a warning; Atari games end after 27,000
TIME_LIMIT = "add a time limit: env_wrappers=[{wrapper: gymnasium.wrappers:TimeLimit, max_episode_steps: 500}]"
PARALLEL_EPISODES = 16  # environments that share one forward pass


class Evaluation(NamedTuple):
    returns: list[float]
    lengths: list[int]
    successes: list[bool] = []  # one per episode, if the environment reports them

    @classmethod
    def of(cls, episodes: list[Episode], successes: list[bool | None]) -> Evaluation:
        known = [success for success in successes if success is not None]
        returns, lengths = [episode.return_ for episode in episodes], [episode.length for episode in episodes]
        return cls(returns, lengths, known if len(known) == len(episodes) else [])

    def summary(self, env_id: str | None = None) -> dict[str, Any]:
        mean = fmean(self.returns)
        summary: dict[str, Any] = {
            "return_mean": mean, "return_std": pstdev(self.returns), "returns": self.returns,
            "lengths": self.lengths, "episodes": len(self.returns),
        }  # fmt: skip
        score = None if env_id is None else normalized_score(env_id, mean)
        rate = {"success_rate": fmean(self.successes)} if self.successes else {}
        return {**summary, **({} if score is None else {"normalized_score": score}), **rate}


@torch.no_grad()
def evaluate(
    policy: Policy, env_id: Any, *, episodes: int, seed: int, env_kwargs: dict[str, Any] | None = None,
    deterministic: bool = True, device: torch.device | str = "cpu", max_steps: int = MAX_STEPS,
    watch: Callable[[], None] = lambda: None, warn: Warn = print_warning, like: EnvSpec | None = None,
    video: Video | None = None, warned: list[str] | None = None,
) -> Evaluation:  # fmt: skip
    """Plays whole episodes, or `max_steps` of each. `watch` is called before each step. A `video` does not change them.

    Each environment plays a fixed share, so short episodes are not over-represented. `like`: see `EnvPool`.
    `warned` holds the warnings that this run has printed already about episodes without an end.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    source = EnvFactory.of(env_id, env_kwargs)
    width = 1 if source.is_single else min(episodes, PARALLEL_EPISODES)
    finished: list[list[Episode]] = [[] for _ in range(width)]
    generator, remaining = streams.generator(seed, "evaluation", device=str(device)), episodes
    watch()
    options: Any = {"max_steps": max_steps, "like": like, "warn": warn, "seed": streams.derive(seed, "evaluation")}
    with _evaluation_mode(policy), _pool(source, width, video, episodes, **options) as pool:
        successes, obs, memory, unended = record_successes(pool), _first_obs(pool, video), Memory(), 0
        while remaining:
            watch()
            rows = torch.as_tensor(obs).to(device)
            acted = policy.act(rows, memory.rows, deterministic=deterministic, generator=generator)
            step = pool.step(finite_actions(checked_action(acted, policy).actions).numpy())
            memory.keep(acted, step.terminated | step.truncated)
            obs, unended = step.obs, 0 if step.finished else unended + 1
            if unended == UNENDED_STEPS < max_steps:
                _warn_of_no_end(max_steps, warn, warned)
            for episode in step.finished:
                counted = finished[episode.env]
                if episode.env + len(counted) * width < episodes:  # environment i plays episodes i, i + width, …
                    counted.append(episode)
                    remaining -= 1
    if video is not None:
        video.save(warn, watch)
    ordered, reported = (_in_order(each, episodes) for each in (finished, successes))
    _warn_of_cuts(ordered, max_steps, warn, warned)
    return Evaluation.of(ordered, reported)


def _in_order(by_env: list[list[Any]], episodes: int) -> list[Any]:
    """Returns the entries of episodes 0, 1, …; environment i of n has played the episodes i, i + n, …"""
    return [by_env[number % len(by_env)][number // len(by_env)] for number in range(episodes)]


@contextmanager
def _evaluation_mode(policy: Policy) -> Iterator[None]:
    """Sets networks to evaluation mode, without dropout, and every module back to its own mode afterwards."""
    modules = [*policy.modules()] if isinstance(policy, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _pool(source: EnvFactory, width: int, video: Video | None, episodes: int, **options: Any) -> EnvPool:
    """Returns the environments; with a video, they can render, and the first are recorded."""
    if video is None:
        return EnvPool(source, width, **options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns of an unknown mode; the camera reports it
            rendered = replace(source, kwargs={**source.kwargs, "render_mode": MODE})
            pool = EnvPool(rendered, width, **options)
    except Exception as error:
        if not any(reason in str(error) for reason in ("render_mode", "takes no arguments")):
            video.fail(error)
            video.require()
        rendered, pool = source, EnvPool(source, width, **options)
    renderer = RenderProcess(rendered, like=options["like"], max_steps=options["max_steps"])
    pool.wrap(video.cameras(width, episodes, renderer))
    return pool


def _first_obs(pool: EnvPool, video: Video | None) -> np.ndarray:
    obs = pool.reset()
    if video is not None:
        video.require()  # before many episodes are played
    return obs


def _warn_of_no_end(max_steps: int, warn: Warn, warned: list[str] | None) -> None:
    if _is_first("no end", warned):
        cut = f"each is cut at eval_max_steps ({max_steps:,}); lower it, or {TIME_LIMIT}"
        warn(f"no evaluation episode ended in {UNENDED_STEPS:,} steps; {cut}")


def _is_first(kind: str, warned: list[str] | None) -> bool:
    if warned is None:
        return True
    warned.append(kind)
    return warned.count(kind) == 1


def _warn_of_cuts(episodes: list[Episode], max_steps: int, warn: Warn, warned: list[str] | None) -> None:
    cut = sum(episode.length >= max_steps for episode in episodes)
    if cut and _is_first("cut", warned):
        is_default = max_steps == MAX_STEPS
        fix = f"lower it, or {TIME_LIMIT}" if is_default else "raise it to see their end"
        cuts = f"{cut} of {len(episodes)} evaluation episodes did not end and were cut after {max_steps:,} steps"
        warn(f"{cuts} (eval_max_steps); {fix}")
