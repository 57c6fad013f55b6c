"""What a world model expects to see: episodes played, seen again by the model, and foreseen from their beginning."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms.dreamer import DreamerAlgorithm
from rl_training.envs.pool import EnvPool
from rl_training.experiment.agent import Agent
from rl_training.models.rssm import Latent
from rl_training.runtime.memory import Memory
from rl_training.types import Array

EPISODES = 64  # played for the errors; the first of them are drawn
TILE, GAP = 64, 2  # pixels: a frame is drawn at least so large, and so far from the next
PAPER, MARK = 96, 255  # shades of what is between frames, and of where foreseeing begins


class Played(NamedTuple):
    """The first episodes of some environments, [episodes, time, ...]."""

    obs: Tensor
    actions: Tensor  # after each observation
    alive: Tensor  # whether the episode had come so far


class Dreams(NamedTuple):
    """Frames [episodes, time, channels, height, width] in [0, 1], and squared errors of the foreseen ones, by pixel."""

    truth: Tensor
    reconstruction: Tensor  # having seen every frame
    prediction: Tensor  # having seen the first `context` frames, and told what was done from there on
    context: int
    error: float
    copy_error: float  # if the last frame of the context were to stay
    shuffled_error: float  # if the model is told what was done in another episode

    @property
    def summary(self) -> dict[str, float | None]:
        """The errors, and how far below the two plain guesses that of the model is; None where a guess is exact."""
        return {
            "prediction_error": self.error, "copy_last_error": self.copy_error, "shuffled_error": self.shuffled_error,
            "of_copy_last": self.error / self.copy_error if self.copy_error else None,
            "of_shuffled": self.error / self.shuffled_error if self.shuffled_error else None,
        }  # fmt: skip


@torch.no_grad()
def dream(agent: Agent, *, context: int = 5, steps: int = 10, episodes: int = EPISODES, seed: int = 0) -> Dreams:
    """Play; the model then foresees up to `steps` frames after the first `context` of each episode, by its actions."""
    for name, value, least in (("context", context, 1), ("steps", steps, 1), ("episodes", episodes, 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    learner = _world_model(agent)
    with streams.fork(seed, "dream"):
        played = _play(agent, context + steps, episodes, seed)
        ahead = played.alive[:, context:]
        if not ahead.numel():
            raise ValueError(f"no episode had more than the {context} frames of the context; take fewer")
        latents = _seen(learner, played)
        model = learner.model
        foreseen, misled = (
            model.pictures(model.decode(_foreseen(learner, latents, actions, context)))
            for actions in (played.actions, played.actions.roll(1, 0))
        )
    truth, seen = (model.pictures(each) for each in (model.scaled(played.obs), model.decode(latents)))
    stays = truth[:, context - 1 : context].expand_as(foreseen)
    errors = [(guess - truth[:, context:]).square().flatten(2).mean(-1) for guess in (foreseen, stays, misled)]
    error, copy_error, shuffled_error = (float(each[ahead].mean()) for each in errors)
    alive = played.alive.view(*played.alive.shape, 1, 1, 1).float()
    return Dreams(
        truth * alive, seen * alive, torch.cat([seen[:, :context], foreseen], 1) * alive, context,
        error=error, copy_error=copy_error, shuffled_error=shuffled_error,
    )  # fmt: skip


def strip(dreams: Dreams, rows: int = 4) -> Array:
    """A picture: for each episode a line of what was, of what the model saw in it, and of what it foresaw."""
    kinds = ((dreams.truth, GAP), (dreams.reconstruction, GAP), (dreams.prediction, 4 * GAP))
    episodes = range(min(rows, len(dreams.truth)))
    drawn = [(_line(frames[row], dreams.context), gap) for row in episodes for frames, gap in kinds]
    picture = np.vstack([part for line, gap in drawn for part in (line, np.full_like(line[:gap], PAPER))])
    return picture if picture.shape[2] == 3 else picture[:, :, 0]


def _world_model(agent: Agent) -> DreamerAlgorithm:
    if not isinstance(agent.learner, DreamerAlgorithm):
        raise ValueError(f"{agent.config.algo} has no world model to dream with; dreamer has")
    if not agent.learner.model.picture:
        raise ValueError(f"dreams are pictures, and {agent.config.env_id} shows vectors of {agent.spec.obs_shape}")
    return agent.learner


def _play(agent: Agent, frames: int, episodes: int, seed: int) -> Played:
    device = next(agent.learner.parameters()).device
    generator, memory = streams.generator(seed, "dream", device=device), Memory()
    seed, kwargs = streams.derive(seed, "dream"), agent.config.env_kwargs
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    with EnvPool(str(agent.config.env_id), episodes, seed=seed, env_kwargs=kwargs) as pool:
        shown, alive, over = pool.reset(), np.ones(episodes, bool), np.zeros(episodes, bool)
        while len(rows) < frames and alive.any():
            action = agent.learner.act(torch.as_tensor(pool.obs).to(device), memory.rows, generator=generator)
            seen, is_alive = (torch.as_tensor(each).to(device, copy=True) for each in (shown, alive))
            rows.append((seen, action.actions, is_alive))
            moved = pool.step(action.actions.cpu().numpy())
            memory.keep(action, moved.terminated | moved.truncated)
            shown, alive = moved.next_obs, alive & ~over
            over = over | moved.terminated | moved.truncated
    return Played(*(torch.stack(column, 1) for column in zip(*rows, strict=True)))


def _seen(learner: DreamerAlgorithm, played: Played) -> Latent:
    """What the model believes at each frame, having seen all up to it."""
    first = torch.zeros_like(played.alive, dtype=torch.float32)
    first[:, 0] = 1
    windows = {"obs": played.obs, "previous_actions": played.actions.roll(1, 1), "is_first": first, "rewards": first}
    return learner.observe(windows).latent


def _foreseen(learner: DreamerAlgorithm, latents: Latent, actions: Tensor, context: int) -> Latent:
    """What follows the context, by what was believed at its end and what is done from there on."""
    start = Latent(*(part[:, context - 1] for part in latents))
    return learner.model.predict(start, actions[:, context - 1 : -1])


def _line(frames: Tensor, context: int) -> Array:
    """Frames [time, channels, height, width] side by side, [height, width, colours]; stacks show their newest plane."""
    planes: Any = frames if frames.shape[1] == 3 else frames[:, -1:]
    shades = (planes.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    scale = max(1, TILE // shades.shape[1])
    large = shades.repeat(scale, 1).repeat(scale, 2)
    gap = np.full_like(large[0][:, :GAP], PAPER)
    marks = [gap if number != context - 1 else np.full_like(gap, MARK) for number in range(len(large))]
    return np.hstack([part for tile, mark in zip(large, marks, strict=True) for part in (tile, mark)])
