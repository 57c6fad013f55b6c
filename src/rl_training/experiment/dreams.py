"""Compares observed frames with the reconstructions and open-loop predictions of a world model."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training import streams
from rl_training.algorithms.dreamer import DreamerAlgorithm
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.agent import Agent, require_integer
from rl_training.models.rssm import Latent
from rl_training.runtime.memory import Memory
from rl_training.runtime.state import finite_actions

EPISODES = 64  # used for the errors; the first ones are plotted


class Rollouts(NamedTuple):
    """One episode per environment, [episodes, time, ...]."""

    obs: Tensor
    actions: Tensor  # taken after each observation
    alive: Tensor  # False after the end of the episode


class Dreams(NamedTuple):
    """Frames [episodes, time, channels, height, width] in [0, 1], and mean squared pixel errors after the context."""

    truth: Tensor
    reconstruction: Tensor  # decoded posterior of every frame
    prediction: Tensor  # posterior for the first `context` frames, then imagined from the actions alone
    context: int
    error: float  # of the prediction
    copy_error: float  # of repeating the last frame of the context
    shuffled_error: float  # of predicting from the actions of another episode
    reconstruction_error: float

    @property
    def summary(self) -> dict[str, float | None]:
        """Errors, and the ratio of the prediction error to both baselines; None if a baseline is exact."""
        return {
            "prediction_error": self.error, "copy_last_error": self.copy_error, "shuffled_error": self.shuffled_error,
            "of_copy_last": self.error / self.copy_error if self.copy_error else None,
            "of_shuffled": self.error / self.shuffled_error if self.shuffled_error else None,
            "reconstruction_error": self.reconstruction_error,
        }  # fmt: skip


@torch.no_grad()
def dream(agent: Agent, *, context: int = 5, steps: int = 10, episodes: int = EPISODES, seed: int = 0) -> Dreams:
    """Plays episodes, then predicts up to `steps` frames after the first `context` frames from the actions taken."""
    for name, value, least in (("context", context, 1), ("steps", steps, 1), ("episodes", episodes, 2)):
        require_integer(name, value, least)
    learner = _world_model(agent)
    with streams.fork(seed, "dream"):
        rollouts = _play(agent, context + steps, episodes, seed)
        is_future = rollouts.alive[:, context:]
        if not is_future.numel():
            raise ValueError(f"no episode is longer than the context of {context} frames; choose a smaller context")
        posterior = _posterior(learner, rollouts)
        model = learner.model
        imagined, shuffled = (
            model.images(model.decode(_imagine(learner, posterior, actions, context)))
            for actions in (rollouts.actions, rollouts.actions.roll(1, 0))
        )
    truth, decoded = (model.images(each) for each in (model.scaled(rollouts.obs), model.decode(posterior)))
    copied = truth[:, context - 1 : context].expand_as(imagined)
    predictions = (imagined, copied, shuffled, decoded[:, context:])
    errors = [(each - truth[:, context:]).square().flatten(2).mean(-1)[is_future].mean() for each in predictions]
    alive = rollouts.alive.view(*rollouts.alive.shape, 1, 1, 1).float()
    prediction = torch.cat([decoded[:, :context], imagined], 1)
    return Dreams(truth * alive, decoded * alive, prediction * alive, context, *map(float, errors))


def _world_model(agent: Agent) -> DreamerAlgorithm:
    if not isinstance(agent.learner, DreamerAlgorithm):
        raise ValueError(f"{agent.config.algo} has no world model; use a dreamer agent")
    if not agent.learner.model.image_shape:
        raise ValueError(f"dreams need image observations, but {agent.config.env_id} has vectors")
    return agent.learner


def _play(agent: Agent, frames: int, episodes: int, seed: int) -> Rollouts:
    device = next(agent.learner.parameters()).device
    generator, memory = streams.generator(seed, "dream", device=device), Memory()
    source = agent.trusted_env()
    if source is None:
        raise ValueError("this agent was trained from data and has no environment to dream in")
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    with EnvPool(source, episodes, seed=streams.derive(seed, "dream")) as pool:
        obs, alive, ended = pool.reset(), np.ones(episodes, bool), np.zeros(episodes, bool)
        while len(rows) < frames and alive.any():
            action = agent.learner.act(torch.as_tensor(pool.obs).to(device), memory.rows, generator=generator)
            frame, is_alive = (torch.as_tensor(each).to(device, copy=True) for each in (obs, alive))
            rows.append((frame, action.actions, is_alive))
            step = pool.step(finite_actions(action.actions).numpy())
            memory.keep(action, step.terminated | step.truncated)
            obs, alive = step.next_obs, alive & ~ended
            ended = ended | step.terminated | step.truncated
    return Rollouts(*(torch.stack(column, 1) for column in zip(*rows, strict=True)))


def _posterior(learner: DreamerAlgorithm, rollouts: Rollouts) -> Latent:
    first = torch.zeros_like(rollouts.alive, dtype=torch.float32)
    first[:, 0] = 1
    previous = rollouts.actions.roll(1, 1)
    windows = {"obs": rollouts.obs, "previous_actions": previous, "is_first": first, "rewards": first}
    return learner.observe(windows).latent


def _imagine(learner: DreamerAlgorithm, posterior: Latent, actions: Tensor, context: int) -> Latent:
    """Predicts latents from the last posterior of the context and the actions after it."""
    start = Latent(*(part[:, context - 1] for part in posterior))
    return learner.model.predict(start, actions[:, context - 1 : -1])
