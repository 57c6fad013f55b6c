"""What a world model expects to see: episodes played, seen again by the model, and foreseen from their beginning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms.dreamer import DreamerAlgorithm
from rl_training.envs.pool import EnvPool
from rl_training.experiment.agent import Agent
from rl_training.models.rssm import Latent
from rl_training.runtime.memory import Memory

EPISODES = 64  # played for the errors; the first of them are plotted


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
    shuffled_error: float  # if the model is given the actions of another episode
    reconstruction_error: float  # on the same frames, with every frame seen

    @property
    def summary(self) -> dict[str, float | None]:
        """The errors, and how far below the two plain guesses that of the model is; None where a guess is exact."""
        return {
            "prediction_error": self.error, "copy_last_error": self.copy_error, "shuffled_error": self.shuffled_error,
            "of_copy_last": self.error / self.copy_error if self.copy_error else None,
            "of_shuffled": self.error / self.shuffled_error if self.shuffled_error else None,
            "reconstruction_error": self.reconstruction_error,
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
    guesses = (foreseen, stays, misled, seen[:, context:])
    errors = [(guess - truth[:, context:]).square().flatten(2).mean(-1)[ahead].mean() for guess in guesses]
    alive = played.alive.view(*played.alive.shape, 1, 1, 1).float()
    return Dreams(
        truth * alive, seen * alive, torch.cat([seen[:, :context], foreseen], 1) * alive, context, *map(float, errors)
    )


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
