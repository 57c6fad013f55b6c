"""Updates of PPO, recurrent PPO and PPO with action masks by stable-baselines3 and sb3-contrib on given rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from peer_side import Request
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates


def rollout_updates(model: Any, asked: Request) -> Iterator[int]:
    """Yields after each rollout, because `train` takes all updates on it at once."""
    columns, updates = asked.part("columns"), 0
    steps, size = asked.options["num_steps"], asked.options["batch_size"]
    for rollout, orders in enumerate(asked.inputs["orders"]):
        rows = {name: column[rollout * steps : (rollout + 1) * steps] for name, column in columns.items()}
        fill(model, rows)
        remaining = list(orders)
        np.random.permutation = lambda length, remaining=remaining: remaining.pop(0)
        np.random.randint = lambda length, remaining=remaining: remaining.pop(0)[0]  # the first row of a sequence
        model.train()
        updates += len(orders) * steps // size
        yield updates


@torch.no_grad()
def fill(model: Any, rows: dict[str, np.ndarray]) -> None:
    """Stores a rollout of one environment with the policy's values and log-probabilities, and computes advantages."""
    buffer, starts = model.rollout_buffer, np.concatenate([[1.0], rows["dones"][:-1]])
    buffer.reset()
    states = zero_states(model) if isinstance(model, RecurrentPPO) else None
    for row, start in enumerate(starts):
        obs, action = rows["obs"][row][None], rows["actions"][row][None]
        inputs, extras = further_inputs(model, obs, states, start)
        value, log_prob, _ = model.policy.evaluate_actions(torch.from_numpy(obs), torch.from_numpy(action), **inputs)
        buffer.add(obs, action, rows["rewards"][row][None], np.array([start]), value, log_prob, **extras)
        if states is not None:
            states = model.policy.forward(torch.from_numpy(obs), **inputs)[-1]
    state = () if states is None else (states.vf, torch.from_numpy(rows["dones"][-1:]))
    last = model.policy.predict_values(torch.from_numpy(rows["next_obs"][-1:]), *state)
    buffer.compute_returns_and_advantage(last, rows["dones"][-1:])


def further_inputs(model: Any, obs: np.ndarray, states: Any, start: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Further arguments of `evaluate_actions` and of the buffer: masks, or states and the start of an episode."""
    if isinstance(model, MaskablePPO):
        masks = {"action_masks": obs[:, -int(model.action_space.n) :]}
        return masks, masks
    if states is None:
        return {}, {}
    return {"lstm_states": states, "episode_starts": torch.tensor([float(start)])}, {"lstm_states": states}


def zero_states(model: Any) -> RNNStates:
    zeros = torch.zeros(model.policy.lstm_hidden_state_shape)
    return RNNStates((zeros, zeros), (zeros, zeros))


def lstms(policy: Any) -> dict[str, torch.Tensor]:
    """Parameters of the LSTMs, whose second biases are zero and not trained, so that each gate has one bias."""
    found = {}
    layers = (policy.lstm_actor, policy.lstm_critic) if hasattr(policy, "lstm_actor") else ()
    for number, layer in enumerate(layers):
        layer.bias_hh_l0.data.zero_()
        layer.bias_hh_l0.requires_grad_(False)
        named = {"inputs": layer.weight_ih_l0, "hidden": layer.weight_hh_l0, "bias": layer.bias_ih_l0}
        found |= {f"model.memory.{number}.{name}": tensor for name, tensor in named.items()}
    return found
