"""Describes an exported policy: inputs, outputs, units, memory and the rules of a deterministic action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rl_training import __version__
from rl_training.algorithms import Learner
from rl_training.data.spaces import action_names, choice_names, named_columns
from rl_training.envs.creation.lending import LentEnv
from rl_training.envs.creation.making import make_env
from rl_training.envs.masks import KEY as MASK
from rl_training.envs.pools.group import close_env
from rl_training.envs.spaces import LibrarySpaces
from rl_training.experiment.agent import Agent
from rl_training.experiment.export.policy import MEANINGS, MEMORY, NEXT_MEMORY, ExportedPolicy
from rl_training.experiment.export.spaces import Port
from rl_training.models.masks import ActionMask
from rl_training.types import Batch, EnvSpec

STATE = {"units": "recurrent state"}


def describe_policy(agent: Agent, policy: ExportedPolicy, *, with_env: bool) -> dict[str, Any]:
    """Returns the description without its files. `with_env` adds the bounds of observations, which checkpoints lack."""
    inputs = policy.example()
    outputs = policy(inputs)
    config = agent.config
    space = _own_space(agent) if with_env else None
    ports = {
        port.name: {**_observation(port, space), **_columns(agent), **_mask(agent, port)}
        for port in policy.observations.ports
    }
    actions = {port.name: each for port, each in zip(policy.actions.ports, _actions(policy), strict=True)}
    return {
        "algorithm": config.algo, "environment": config.env_id, "environment_kwargs": config.env_kwargs,
        "checkpoint": str(agent.path), "rl_training": __version__,
        "inputs": [{**_tensor(name, each), **ports.get(name, STATE)} for name, each in inputs.items()],
        "outputs": [
            {**_tensor(name, each), **actions.get(name, {"meaning": MEANINGS[name]} if name in MEANINGS else STATE)}
            for name, each in outputs.items()
        ],
        "memory": _memory(policy.learner.initial_memory(1)),
        "rules": rules(agent),
    }  # fmt: skip


def rules(agent: Agent) -> dict[str, str]:
    """States how every random part of the policy is fixed."""
    learner: Learner = agent.learner
    model, config, found = learner.model, learner.config, {"actions": _action_rule(agent)}
    if learner.name == "iqn":
        found["fractions"] = f"midpoints of {config.num_acting_quantiles} equal intervals of [0, 1]"
    if learner.name == "fql":
        found["noise"] = "0, as `predict` without a generator"
    if learner.name == "fqf":
        found["fractions"] = "those that the network proposes for the observation"
    if getattr(config, "noisy", False):
        found["weights"] = "means of the noisy layers, without noise"
    if hasattr(model, "rssm"):
        found["latents"] = "most likely class of each latent, as `predict` without a generator"
    return found


def _action_rule(agent: Agent) -> str:
    if agent.spec.action_kind == "box":
        return "mean of the policy, scaled to the environment's bounds and clipped to them"
    return "action with the highest logit or Q-value; the first of equal ones"


def _tensor(name: str, value: Tensor) -> dict[str, Any]:
    return {"name": name, "shape": ["batch", *value.shape[1:]], "dtype": str(value.dtype).removeprefix("torch.")}


def _own_space(agent: Agent) -> Any:
    """Returns the environment's own observation space; None for an object of the user's, which is not made again."""
    source = agent.trusted_env()
    if source is None or isinstance(source.env, LentEnv):
        return None
    env = make_env(source, like=agent.spec)
    own: gym.Env[Any, Any] = env.env if isinstance(env, LibrarySpaces) else env
    try:
        return own.observation_space
    finally:
        close_env(env)


def _observation(port: Port, space: Any) -> dict[str, Any]:
    for key in port.path:
        space = None if space is None else space[key]
    bounds = {"low": getattr(space, "low", None), "high": getattr(space, "high", None)}
    if port.leaf is not None and port.leaf.kind in ("Discrete", "MultiDiscrete"):
        low = port.leaf.starts.reshape(port.shape)
        bounds = {"low": low, "high": low + port.leaf.sizes.reshape(port.shape) - 1}
    elif port.leaf is not None and port.leaf.kind == "MultiBinary":
        bounds = {"low": 0, "high": 1}
    elif port.dtype == torch.uint8:
        bounds = {"low": 0, "high": 255}
    found = {name: None if each is None else _bound(each) for name, each in bounds.items()}
    return {"units": "as the environment returns them; normalised and scaled inside", **found, **_path(port)}


def _path(port: Port) -> dict[str, Any]:
    return {"path": list(port.path)} if port.path else {}


def _actions(policy: ExportedPolicy) -> list[dict[str, Any]]:
    spec = policy.actions.spec
    low, high = np.array(spec.action_low), np.array(spec.action_high)
    if spec.action_kind != "box":
        low = np.array(spec.action_starts or (spec.action_start,))
        high = low + np.array(spec.choice_sizes) - 1
    ends = np.cumsum(policy.actions.sizes)[:-1]
    parts = zip(policy.actions.ports, np.split(low, ends), np.split(high, ends), strict=True)
    return [
        {"units": "as the environment takes them", "low": _bound(lowest.reshape(port.shape)),
         "high": _bound(highest.reshape(port.shape)), **_path(port), **_names(spec)}
        for port, lowest, highest in parts
    ]  # fmt: skip


def _columns(agent: Agent) -> dict[str, Any]:
    """Columns of the table that the agent was trained from, and the values of its categories."""
    spec = agent.spec
    if spec.obs_names is None:
        return {}
    categories = named_columns(spec)[1]
    return {"columns": list(spec.obs_names), **({"categories": categories} if categories else {})}


def _mask(agent: Agent, port: Port) -> dict[str, Any]:
    """The number of actions of each choice, for the input that the policy reads valid actions from."""
    is_read = any(isinstance(each, ActionMask) for each in agent.learner.model.modules())
    return {"mask": list(agent.spec.choice_sizes)} if is_read and port.path == (MASK,) else {}


def _names(spec: EnvSpec) -> dict[str, Any]:
    if spec.action_columns is not None:
        names = {column: values for column, values in (choice_names(spec) or {}).items() if values}
        return {"columns": list(spec.action_columns), **({"categories": names} if names else {})}
    found = action_names(spec)
    return {} if found is None else {"names": found}


def _bound(values: Any) -> Any:
    """Nested lists, or a single number if all are equal; infinite bounds, which JSON lacks, are null."""
    array = np.asarray(values)
    finite = array.astype(object)
    finite[~np.isfinite(array)] = None
    return finite.flat[0] if array.size and (array == array.flat[0]).all() else finite.tolist()


def _memory(initial: Batch) -> list[dict[str, Any]]:
    return [
        {"name": name, "input": MEMORY + name, "output": NEXT_MEMORY + name, "initial": _bound(each[0].numpy())}
        for name, each in initial.items()
    ]
