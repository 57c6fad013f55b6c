"""Batches, rollouts and noise of a comparison, the same for both sides."""

from __future__ import annotations

import numpy as np
import torch

from equal_peers.cases import Case, Draw
from equal_peers.precision import converted
from rl_training.types import Arrays, Batch, EnvSpec

OBS_DIM, ACTION_DIM, ACTIONS = 11, 3, 4
ONE = (1.0,) * ACTION_DIM
BOX = EnvSpec(
    (OBS_DIM,), "box", ACTION_DIM, action_shape=(ACTION_DIM,), action_low=tuple(-x for x in ONE), action_high=ONE
)
DISCRETE = EnvSpec((OBS_DIM,), "discrete", ACTIONS)
MASKED = EnvSpec((OBS_DIM + ACTIONS,), "discrete", ACTIONS, action_mask=OBS_DIM)


def transitions(case: Case, rows: int, seed: int) -> Arrays:
    """Random transitions of one long trajectory; a tenth of them end an episode."""
    random = np.random.default_rng(seed)
    obs = random.normal(size=(rows + 1, OBS_DIM))
    actions = random.integers(ACTIONS, size=rows) if case.discrete else random.uniform(-0.95, 0.95, (rows, ACTION_DIM))
    rewards, dones = random.normal(size=rows), (random.random(rows) < 0.1).astype(float)
    if case.masked:
        valid = random.random((rows + 1, ACTIONS)) < 0.5
        valid[np.arange(rows), actions] = True
        valid[-1] = True
        obs = np.concatenate([obs, valid], 1)
    columns = {"obs": obs[:-1], "next_obs": obs[1:], "actions": actions, "rewards": rewards, "dones": dones}
    if case.algo == "rebrac":
        columns |= {"next_actions": random.uniform(-0.95, 0.95, (rows, ACTION_DIM)), "truncated": np.zeros(rows)}
    return converted(columns)


def orders(case: Case, updates: int, seed: int) -> np.ndarray:
    """Row numbers of every epoch of every rollout, [rollouts, epochs, steps].

    They are shuffled. Those of recurrent networks are in order from a random multiple of the sequence length.
    """
    random, steps, epochs = np.random.default_rng(seed), case.options["num_steps"], case.options["epochs"]
    length = case.options.get("sequence_length")

    def order() -> np.ndarray:
        if length is None:
            return random.permutation(steps)
        return np.roll(np.arange(steps), length * random.integers(steps // length))

    rollouts = updates * case.options["batch_size"] // (steps * epochs)
    return np.stack([[order() for _ in range(epochs)] for _ in range(rollouts)])


def seed_noise(update: int) -> None:
    torch.manual_seed(1_000 + update)


def noise(case: Case, updates: int) -> Arrays:
    """The numbers that the losses of rl_training draw after `seed_noise`, [updates, ...] each."""
    drawn: dict[str, list[np.ndarray]] = {draw.name: [] for draw in case.draws}
    for update in range(updates):
        seed_noise(update)
        for draw in case.draws:
            drawn[draw.name].append(sampled(draw, case.options["batch_size"]).numpy())
    return {name: np.stack(each) for name, each in drawn.items()}


def sampled(draw: Draw, rows: int) -> torch.Tensor:
    shape = (*([draw.samples] if draw.samples else []), rows, ACTION_DIM)
    return 2 * torch.rand(shape) - 1 if draw.uniform else torch.randn(shape)


def rows_of(columns: Arrays, rows: slice | np.ndarray) -> Batch:
    return {name: torch.from_numpy(column[rows]) for name, column in columns.items()}
