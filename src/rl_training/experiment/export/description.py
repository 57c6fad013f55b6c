"""Describes an exported policy: inputs, outputs, units, memory and the rules of a deterministic action."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from rl_training import __version__
from rl_training.algorithms import Learner
from rl_training.envs.making import make_env
from rl_training.experiment.agent import Agent
from rl_training.experiment.export.policy import ACTIONS, MEANINGS, MEMORY, NEXT_MEMORY, OBS, ExportedPolicy
from rl_training.types import Batch


def describe_policy(agent: Agent, policy: ExportedPolicy, *, with_env: bool) -> dict[str, Any]:
    """Returns the description without its files. `with_env` adds the bounds of observations, which checkpoints lack."""
    inputs = policy.example()
    outputs = policy(inputs)
    config = agent.config
    return {
        "algorithm": config.algo, "environment": config.env_id, "environment_kwargs": config.env_kwargs,
        "checkpoint": str(agent.path), "rl_training": __version__,
        "inputs": [
            {**_tensor(name, each), **(_observation(agent, with_env=with_env) if name == OBS else {"units": "memory"})}
            for name, each in inputs.items()
        ],
        "outputs": [{**_tensor(name, each), **_output(agent, name)} for name, each in outputs.items()],
        "memory": _memory(policy.learner.initial_memory(1)),
        "rules": rules(agent),
    }  # fmt: skip


def rules(agent: Agent) -> dict[str, str]:
    """States how every random part of the policy is fixed."""
    learner: Learner = agent.learner
    model, config, found = learner.model, learner.config, {"actions": _action_rule(agent)}
    if learner.name == "iqn":
        found["fractions"] = f"midpoints of {config.num_acting_quantiles} equal intervals of [0, 1]"
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


def _observation(agent: Agent, *, with_env: bool) -> dict[str, Any]:
    bounds: dict[str, Any] = {"low": None, "high": None}
    if agent.spec.obs_dtype == "uint8":
        bounds = {"low": 0, "high": 255}
    elif with_env:
        env = make_env(agent.trusted_env() or "", agent.config.env_kwargs)
        space: Any = env.observation_space
        env.close()
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
    return {"units": "as the environment returns them; normalised and scaled inside", **bounds}


def _output(agent: Agent, name: str) -> dict[str, Any]:
    if name.startswith(NEXT_MEMORY):
        return {"units": "memory"}
    if name != ACTIONS:
        return {"meaning": MEANINGS[name]}
    spec = agent.spec
    if spec.action_kind == "box":
        low, high = (np.reshape(each, spec.action_shape) for each in (spec.action_low, spec.action_high))
    else:
        starts = spec.action_starts or (spec.action_start,)
        ends = np.add(starts, spec.action_sizes or (spec.action_dim,)) - 1
        low, high = (np.reshape(each, spec.action_shape) for each in (starts, ends))
    return {"units": "as the environment takes them", "low": _bound(low), "high": _bound(high)}


def _bound(values: Any) -> Any:
    """Nested lists, or a single number if all are equal; infinite bounds, which JSON lacks, are null."""
    flat = np.asarray(values)
    if flat.size and (flat == flat.flat[0]).all():
        return flat.flat[0].item() if math.isfinite(flat.flat[0]) else None
    return [_bound(each) for each in flat]


def _memory(initial: Batch) -> list[dict[str, Any]]:
    return [
        {"name": name, "input": MEMORY + name, "output": NEXT_MEMORY + name, "initial": _bound(each[0].numpy())}
        for name, each in initial.items()
    ]
