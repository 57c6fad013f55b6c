"""Formulas of losses, returns and action selection."""

import torch
from torch import Tensor

from rl_training.types import Loss


def td_target(rewards: Tensor, dones: Tensor, next_values: Tensor, discounts: Tensor | float) -> Tensor:
    """TD target: r + discount * (1 - done) * next value, where done means terminated only."""
    return rewards + discounts * (1 - dones) * next_values


def ensemble_squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error between predictions [copies, rows] and targets [rows], summed over the copies."""
    return (predictions - targets).square().mean(-1).sum()


def squared_td_loss(q: Tensor, target_q: Tensor) -> Loss:
    """Critic loss: mean of (Q(s, a) - target)^2, summed over the critics."""
    return Loss({"critic_loss": ensemble_squared_error(q, target_q)}, {"target_q_mean": target_q.mean()})


def select_action(values: Tensor, actions: Tensor) -> Tensor:
    """Selects the entry of each row's action: [rows, actions, ...] -> [rows, ...]."""
    # Not `take_along_dim`, which checks every index.
    index = actions.view(-1, *[1] * (values.dim() - 1)).expand(-1, -1, *values.shape[2:])
    return values.gather(1, index).squeeze(1)


def epsilon_greedy(
    values: Tensor, epsilon: Tensor | float, generator: torch.Generator | None, valid: Tensor | None = None
) -> Tensor:
    """Greedy actions of Q-values [rows, actions]; each is uniform over the valid ones with probability epsilon."""
    greedy = values.argmax(-1)
    uniform = torch.rand(2, *greedy.shape, generator=generator, device=values.device)
    random = (uniform[1] * values.shape[-1]).long() if valid is None else nth_valid(uniform[1], valid)
    return torch.where(uniform[0] < epsilon, random, greedy)


def nth_valid(uniform: Tensor, valid: Tensor) -> Tensor:
    """Maps numbers in [0, 1) to uniform actions among the valid ones [..., actions]."""
    number = (uniform * valid.sum(-1)).long().unsqueeze(-1)
    return (valid.cumsum(-1) > number).long().argmax(-1)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Expectile regression: mean of |expectile - 1(error < 0)| * error^2, where error = target - estimate."""
    return (torch.where(error > 0, expectile, 1 - expectile) * error.square()).mean()


def weighted_cloning_loss(log_weight: Tensor, log_prob: Tensor, max_weight: float) -> Loss:
    """Policy loss: mean of -min(exp(log weight), max_weight) * log pi(a|s), without gradients for the weights."""
    weight = log_weight.detach().exp().clamp(max=max_weight)
    return Loss({"actor_loss": -(weight * log_prob).mean()}, {"advantage_weight_mean": weight.mean()})


def percentile(ordered: Tensor, fraction: float) -> Tensor:
    """Percentile of sorted values, linearly interpolated; `torch.quantile` limits the number of values."""
    place = fraction * (len(ordered) - 1)
    low = int(place)
    return ordered[low].lerp(ordered[min(low + 1, len(ordered) - 1)], place - low)


def lambda_returns(rewards: Tensor, discounts: Tensor, values: Tensor, traces: Tensor) -> Tensor:
    """R_t = r_t+1 + discount_t+1 * ((1 - trace_t+1) * v_t+1 + trace_t+1 * R_t+1), with R_n = v_n."""
    # Inputs are [n + 1, ...] for the states 0 to n; the returns are [n, ...] for the states 0 to n - 1.
    returns = [values[-1]]
    bases = rewards + discounts * (1 - traces) * values
    carries = discounts * traces
    for t in range(len(rewards) - 1, 0, -1):
        returns.append(bases[t] + carries[t] * returns[-1])
    return torch.stack(returns[:0:-1])
