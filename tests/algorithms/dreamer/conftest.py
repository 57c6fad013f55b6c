"""A small Dreamer, and windows of a life for it to learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from rl_training.algorithms.dreamer import DreamerAlgorithm, DreamerConfig, ImaginedRollout
from rl_training.data.spaces import observations_of
from rl_training.models.dreamer import DreamerModel, Size
from rl_training.models.rssm import Latent
from rl_training.types import Batch, EnvSpec

SMALL = Size(deter=16, hidden=8, latents=4, classes=4, depth=2, units=8)
PIXELS = EnvSpec((1, 16, 16), "discrete", 3, obs_dtype="uint8")


def _small(spec: EnvSpec = PIXELS, **options: Any) -> DreamerAlgorithm:
    options = {"horizon": 3, "warm_up": 0, **options}
    config = DreamerConfig(**options)
    model = DreamerModel(
        spec,
        SMALL._replace(release=config.architecture),
        unimix=config.actor_unimix,
        actor_scale=config.actor_scale,
        symlog_bins=config.bins == "symlog",
    )
    return DreamerAlgorithm(model, config)


def _used(spec: EnvSpec = PIXELS, **options: Any) -> DreamerAlgorithm:
    """A learner none of whose layers is zero any more."""
    learner = _small(spec, **options)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return learner


def _windows(spec: EnvSpec = PIXELS, rows: int = 3, steps: int = 6, size: Size = SMALL) -> Batch:
    """In the first row an episode terminates at step 2, in the second one is cut short there."""
    draws = torch.Generator().manual_seed(5)
    if spec.obs_parts:
        drawn = {
            part.name: torch.randint(256, (rows, steps, *part.shape), generator=draws).numpy()
            for part in spec.obs_parts
        }
        converter = observations_of(spec)
        assert converter is not None
        obs = torch.as_tensor(converter.rows(drawn))
    elif spec.obs_dtype == "uint8":
        obs = torch.randint(256, (rows, steps, *spec.obs_shape), generator=draws, dtype=torch.uint8)
    else:
        obs = torch.randn(rows, steps, *spec.obs_shape, generator=draws)
    if spec.action_kind == "discrete":
        actions = torch.randint(spec.action_dim, (rows, steps), generator=draws)
    else:
        actions = torch.rand(rows, steps, spec.action_dim, generator=draws) * 2 - 1
    dones, is_last, is_first = torch.zeros(3, rows, steps)
    dones[0, 2] = is_last[:2, 2] = is_first[:2, 3] = 1
    return {
        "obs": obs, "actions": actions, "previous_actions": actions.roll(1, 1), "dones": dones, "is_last": is_last,
        "is_first": is_first, "rewards": torch.randn(rows, steps, generator=draws),
        "start_deter": torch.randn(rows, size.deter, generator=draws).half(),
        "start_stoch": torch.randint(size.classes, (rows, size.latents), generator=draws, dtype=torch.uint8),
    }  # fmt: skip


def _dream(learner: DreamerAlgorithm, rows: int = 5) -> ImaginedRollout:
    start = Latent(torch.randn(rows, SMALL.deter), one_hot(torch.randint(4, (rows, 4)), 4).float())
    return learner.imagine(start, torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])[:rows])


@pytest.fixture
def small() -> Callable[..., DreamerAlgorithm]:
    return _small


@pytest.fixture
def used() -> Callable[..., DreamerAlgorithm]:
    return _used


@pytest.fixture
def windows() -> Callable[..., Batch]:
    return _windows


@pytest.fixture
def dream() -> Callable[..., ImaginedRollout]:
    return _dream
