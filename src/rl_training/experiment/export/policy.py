"""A trained policy as one traceable module: from observations to actions, both in the environment's units."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms import Learner
from rl_training.experiment.agent import Agent
from rl_training.experiment.export.spaces import Actions, Observations
from rl_training.models import heads
from rl_training.types import Action, Batch, EnvSpec, Metrics

MEMORY, NEXT_MEMORY = "memory_", "next_memory_"  # prefixes of the recurrent state's inputs and outputs
LATENT_LOGITS = "latent_logits"
MEANINGS = {
    "q_values": "expected return of each action",
    "logits": "unnormalised log-probability of each action; the choices of a MultiDiscrete space follow one another",
    "mean": "mean of the Gaussian policy, for bounds of -1 and 1, before clipping",
    "squashed_mean": "mean of the Gaussian policy before tanh",
    "policy_actions": "actions for bounds of -1 and 1",
    "policy_outputs": "outputs of the policy network",
    LATENT_LOGITS: "logits of the latents' classes after this observation",
}


class ExportedPolicy(nn.Module):
    """The deterministic policy of a learner. Takes and returns dicts of tensors with a leading batch axis.

    Inputs are the observations and the recurrent state, if there is one. Outputs are the actions, the quantities that
    they were chosen by (see `MEANINGS`) and the next recurrent state.
    """

    def __init__(self, learner: Learner, spec: EnvSpec) -> None:
        super().__init__()
        self.learner = learner
        self.observations, self.actions = Observations(spec), Actions(spec)

    def forward(self, inputs: Batch) -> Batch:
        memory = {name.removeprefix(MEMORY): each for name, each in inputs.items() if name.startswith(MEMORY)}
        return self.outputs(*decide(self.learner, self.observations.rows(inputs), memory or None))

    def outputs(self, action: Action, quantities: Metrics) -> Batch:
        state = {NEXT_MEMORY + name: each for name, each in (action.memory or {}).items()}
        return {**self.actions.outputs(action.actions), **quantities, **state}

    def with_memory(self, obs: Batch, memory: Batch | None) -> Batch:
        """Returns all inputs for these observations; without `memory`, they are the first of an episode."""
        rows = len(next(iter(obs.values())))
        state = self.learner.initial_memory(rows) if memory is None else memory
        return {**obs, **{MEMORY + name: each for name, each in state.items()}}

    def example(self) -> Batch:
        """Returns two rows of inputs to trace with. One row would fix the batch axis."""
        return self.with_memory(self.observations.zeros(2), None)


def decide(learner: Learner, rows: Tensor, memory: Batch | None) -> tuple[Action, Metrics]:
    """Returns the deterministic action and the quantities that it was chosen by."""
    with _recorded(learner) as quantities, torch.no_grad():
        action = learner.act(rows, memory, deterministic=True)
    if not quantities and action.actions.is_floating_point():  # an algorithm with a policy head of its own
        quantities["policy_actions"] = action.actions
    return action, quantities


def action_probabilities(agent: Agent, obs: Any) -> tuple[np.ndarray[Any, Any], ...]:
    """Returns the probability of each action, [..., actions], for each choice; a Discrete action is one choice.

    Each observation is the first of an episode. Raises ValueError for policies that are not categorical.
    """
    flat, lead = agent.batch(obs)
    _, quantities = decide(agent.learner, flat, None)
    if agent.spec.action_kind == "box" or "logits" not in quantities:
        raise ValueError(
            f"{agent.config.algo} has no action probabilities here; they are for Discrete or MultiDiscrete actions and "
            "a categorical policy, such as those of bc, iql, xql, ppo and sac"
        )
    choices = quantities["logits"].split(agent.spec.choice_sizes, -1)
    return tuple(each.softmax(-1).cpu().numpy().reshape(*lead, -1) for each in choices)


@contextmanager
def _recorded(learner: Learner) -> Iterator[Metrics]:
    """Records the outputs of the policy head, or else of the Q-network, and of a world model's posterior."""
    quantities: Metrics = {}
    actor = getattr(learner.model, "actor", None)
    head, bare = (getattr(learner.model, "q", None), "q_values") if actor is None else (actor, "policy_outputs")
    posterior = getattr(getattr(learner.model, "rssm", None), "posterior", None)
    handles = []
    if head is not None:
        handles.append(head.register_forward_hook(lambda _, __, output: quantities.update(_quantities(output, bare))))
    if posterior is not None:
        handles.append(
            posterior.register_forward_hook(lambda _, __, logits: quantities.update({LATENT_LOGITS: logits}))
        )
    try:
        yield quantities
    finally:
        for handle in handles:
            handle.remove()


def _quantities(output: Any, bare: str) -> Metrics:
    """Names an output of the policy head or the Q-network; `bare` is the name of a tensor without a distribution."""
    if isinstance(output, heads.MultiCategorical):
        return {"logits": torch.cat([choice.logits for choice in output.choices], -1)}
    if isinstance(output, heads.Categorical):
        return {"logits": output.logits}
    if isinstance(output, heads.SquashedGaussian):
        return {"squashed_mean": output.mean}
    if isinstance(output, heads.Gaussian):
        return {"mean": output.mean}
    if isinstance(output, heads.Deterministic):
        return {"policy_actions": output.actions}
    if hasattr(output, "expected"):  # a return distribution
        return {"q_values": output.expected()}
    return {bare: output} if isinstance(output, Tensor) else {}
