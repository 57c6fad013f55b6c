"""Observations to compare an exported policy on: from its environment, or from data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rl_training import streams
from rl_training.data import TransitionDataset
from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.agent import Agent
from rl_training.experiment.datasets import load_dataset
from rl_training.experiment.export.parity import Comparison
from rl_training.experiment.ope import load_dataset_for
from rl_training.runtime.policies import RandomPolicy
from rl_training.runtime.state import finite_actions

OBSERVATIONS = 4_096
ENVS, CHUNK = 16, 256  # rows of one forward pass, from environments and from data
RANDOM = 0.1  # share of random actions, which lead to more states than the policy's own


class Observed(NamedTuple):
    """Data to take observations from, and the options to read them with."""

    source: Path
    reading: Mapping[str, Any]


def observe(agent: Agent, comparison: Comparison, count: int, data: Observed | None) -> str:
    """Passes at least `count` observations to the comparison and returns their source."""
    if data is not None or agent.config.env_id is None:
        return _read(agent, comparison, count, data)
    return _play(agent, comparison, count)


@torch.no_grad()
def _play(agent: Agent, comparison: Comparison, count: int) -> str:
    source = agent.trusted_env()
    if source is None:
        raise ValueError("this agent has no environment; give --data DATASET to compare the exported policy on")
    seed, generator = streams.derive(0, "export"), streams.generator(0, "export")
    width = 1 if source.is_single else min(ENVS, count)
    random = RandomPolicy(agent.spec)
    with EnvPool(source, width, seed=seed, max_steps=agent.config.eval_max_steps, like=agent.spec) as pool:
        obs = torch.as_tensor(pool.reset())
        for _ in range(0, count, width):
            action = comparison.act(obs)
            finite_actions(action.actions)
            explores = torch.rand(width, generator=generator) < RANDOM
            explores = explores.view(-1, *[1] * (action.actions.dim() - 1))
            uniform = random.act(obs, generator=generator).actions
            action = action.with_actions(torch.where(explores, uniform, action.actions))
            step = pool.step(action.actions.numpy())
            comparison.memory.keep(action, step.terminated | step.truncated)
            obs = torch.as_tensor(step.obs)
    return str(source)


def _read(agent: Agent, comparison: Comparison, count: int, data: Observed | None) -> str:
    """Reads rows at equal distances. A recurrent policy treats each as the first of an episode."""
    dataset = _dataset_of_run(agent) if data is None else load_dataset_for(agent, data.source, **data.reading)
    places = torch.linspace(0, len(dataset) - 1, min(count, len(dataset))).long()
    for chunk in dataset.columns["obs"][places].split(CHUNK):
        comparison.act(chunk)
    return "the dataset of the run" if data is None else str(data.source)


def _dataset_of_run(agent: Agent) -> TransitionDataset:
    other = "compare the policy on other observations with --data DATASET"
    try:
        dataset = load_dataset(agent.config)[0]
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; {other}") from error
    found, known = dataset.spec, agent.spec
    if found.obs_shape != known.obs_shape:
        shapes = f"observations of shape {found.obs_shape}, but the agent was trained on {known.obs_shape}"
        raise ValueError(f"the dataset of the run has {shapes}; {other}")
    for name, before in zip(found.obs_names or (), known.obs_names or (), strict=False):
        if name != before:  # also other values of a category, such as site=west instead of site=north
            places = f"the observation {name!r} where the agent was trained on {before!r}"
            raise ValueError(f"the dataset of the run has {places}; {other}")
    return dataset
