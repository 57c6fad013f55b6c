"""Compares an exported policy with its agent on the same observations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_training.experiment.agent import Agent
from rl_training.experiment.export.files import Runnable
from rl_training.experiment.export.policy import LATENT_LOGITS, NEXT_MEMORY, ExportedPolicy, decide
from rl_training.experiment.export.spaces import ACTIONS
from rl_training.models.masks import INVALID
from rl_training.runtime.memory import Memory
from rl_training.types import Action, Array, Arrays

TOLERANCE = 1e-5
SCORES = ("logits", "q_values", "policy_outputs")  # by which Discrete actions are chosen
MEANS = {"mean", "squashed_mean"}  # of a policy, for actions from -1 to 1


class Parity(NamedTuple):
    """Largest differences between an exported policy and its agent.

    The relative error of a value b that the file computes as a is |a - b| / max(|b|, scale), where the scale is the
    root mean square of that quantity over all observations; of Box actions it is half their range. The mean of a policy
    is compared in the same unit: its scale is at least 1, so that actions near 0 need no smaller errors.
    """

    observations: int
    source: str  # an environment or a dataset
    errors: dict[str, float]  # largest relative error of each quantity, by name
    scales: dict[str, float]
    equal_actions: int  # observations with the same action; Box actions: within the tolerance
    ties: int  # observations with another action or latent, whose score is within the tolerance of the best
    tolerance: float

    @property
    def worst(self) -> float:
        return max(self.errors.values(), default=0.0)

    @property
    def holds(self) -> bool:
        return self.worst <= self.tolerance and self.equal_actions + self.ties >= self.observations

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "holds": self.holds, "measure": "|a - b| / max(|b|, scale)"}


class ParityError(RuntimeError):
    """The exported policy differs from its agent by more than the tolerance; `parity` has the numbers."""

    def __init__(self, message: str, parity: Parity) -> None:
        super().__init__(message)
        self.parity = parity


class Comparison:
    """Collects the outputs of an agent and of its exported policy. A recurrent policy is given the agent's memory."""

    def __init__(self, agent: Agent, run: Runnable) -> None:
        self.agent, self.run = agent, run
        self.policy, self.memory = ExportedPolicy(agent.learner, agent.spec), Memory()
        self.expected: list[Arrays] = []
        self.exported: list[Arrays] = []

    @torch.no_grad()
    def act(self, obs: Tensor) -> Action:
        """Returns the agent's action. The caller passes it to `memory.keep`."""
        inputs = self.policy.with_memory(self.policy.observations.inputs(obs), self.memory.rows)
        action, quantities = decide(self.agent.learner, obs, self.memory.of(len(obs)))
        expected = self.policy.outputs(action, quantities)
        self.expected.append({name: each.numpy() for name, each in expected.items()})
        self.exported.append(self.run({name: each.numpy() for name, each in inputs.items()}))
        return action

    def result(self, source: str, tolerance: float) -> Parity:
        expected, exported = (self._joined(each) for each in (self.expected, self.exported))
        count, spec = len(expected[ACTIONS]), self.agent.spec
        scales: dict[str, Any] = {name: _scale(each) for name, each in expected.items() if each.dtype.kind == "f"}
        if spec.action_kind == "box":
            scales |= {name: max(scales[name], 1.0) for name in MEANS & scales.keys()}
            scales[ACTIONS] = np.subtract(spec.action_high, spec.action_low) / 2
        other_latents, tied_latents = self._latents(expected, exported, tolerance)
        judged = ~tied_latents  # another latent changes every output
        errors = {name: _error(exported[name][judged], expected[name][judged], scale) for name, scale in scales.items()}
        if spec.action_kind == "box":
            other, tied = other_latents, tied_latents
        else:
            other, tied = self._choices(expected, exported, tolerance)
            other, tied = other | other_latents, np.where(other_latents, tied_latents, tied)
        return Parity(
            count, source, errors, {name: float(np.min(scale)) for name, scale in scales.items()},
            int((~other).sum()), int(tied.sum()), tolerance,
        )  # fmt: skip

    def _joined(self, parts: list[Arrays]) -> Arrays:
        """Joins the batches, and actions of several parts to one array [rows, entries]."""
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        ports = {port.name for port in self.policy.actions.ports}
        others = {name: each for name, each in outputs.items() if name not in ports}
        return {ACTIONS: self.policy.actions.flat(outputs), **others}

    def _choices(self, expected: Arrays, exported: Arrays, tolerance: float) -> tuple[Array, Array]:
        """Rows whose actions differ, and those of them where the scores of both are closer than the tolerance."""
        spec = self.agent.spec
        sizes, starts = spec.choice_sizes, spec.action_starts or (spec.action_start,)
        chosen = [each[ACTIONS] - np.array(starts) for each in (expected, exported)]
        scores = next((expected[name] for name in SCORES if name in expected), None)
        if scores is None or scores.shape != (len(chosen[0]), sum(sizes)):  # an algorithm from outside may have others
            other: Array = (chosen[0] != chosen[1]).any(1)
            return other, np.zeros_like(other)  # without scores there are no ties
        edges = np.cumsum(sizes)[:-1]
        return _compare_choices(np.split(scores, edges, 1), chosen, tolerance * _scale(scores))

    def _latents(self, expected: Arrays, exported: Arrays, tolerance: float) -> tuple[Array, Array]:
        """As `_choices`, for the latents of a world model."""
        count = len(expected[ACTIONS])
        if LATENT_LOGITS not in expected:
            return np.zeros(count, bool), np.zeros(count, bool)
        logits = expected[LATENT_LOGITS].reshape(count, *self.agent.learner.model.rssm.shape)
        chosen = [each[NEXT_MEMORY + "stoch"].astype(np.int64) for each in (expected, exported)]
        return _compare_choices([*logits.swapaxes(0, 1)], chosen, tolerance * _scale(logits))


def _compare_choices(scores: list[Array], chosen: list[Array], margin: float) -> tuple[Array, Array]:
    other: Array = chosen[0] != chosen[1]
    gaps = [
        np.abs(np.subtract(*(np.take_along_axis(each, choice[:, [index]], 1)[:, 0] for choice in chosen)))
        for index, each in enumerate(scores)
    ]
    differs, close = np.any(other, 1), np.all(np.stack(gaps, 1) <= margin, 1)
    return differs, differs & close


def _scale(values: Array) -> float:
    """Root mean square without invalid actions, or the smallest float32 if all values are 0."""
    known = values[values > INVALID]
    mean = np.square(known, dtype=np.float64).mean() if known.size else 0.0
    return max(float(np.sqrt(mean)), float(np.finfo(np.float32).tiny))


def _error(values: Array, expected: Array, scale: Any) -> float:
    """Largest relative error; infinite if a value is NaN."""
    difference = np.abs(values.astype(np.float64) - expected)
    errors = difference / np.maximum(np.abs(expected), scale)
    return float(np.where(np.isnan(errors), np.inf, errors).max(initial=0.0))
