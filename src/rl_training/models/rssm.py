"""Recurrent state-space model, RSSM (Hafner et al., 2019, arXiv:1811.04551; 2023, arXiv:2301.04104)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot, silu

from rl_training.models.heads import gumbel
from rl_training.models.normed import LAYERS_2024, LayerFactory, RMSNorm, block_linear

UNIMIX = 0.01  # uniform share of every latent's distribution, which keeps the KL finite


class Latent(NamedTuple):
    """State of the world model: the recurrent state and one-hot categorical latents."""

    deter: Tensor  # [..., deter]
    stoch: Tensor  # [..., latents, classes]

    @property
    def features(self) -> Tensor:
        return torch.cat([self.deter, self.stoch.flatten(-2)], -1)

    def flat(self) -> Latent:
        """Merges batch and time into rows and detaches."""
        return Latent(self.deter.detach().flatten(0, 1), self.stoch.detach().flatten(0, 1))

    def class_indices(self) -> Tensor:
        """Class index of each latent as uint8, the format in which states are stored."""
        return self.stoch.detach().argmax(-1).to(torch.uint8)


PosteriorStep = Callable[[Latent, Tensor, Tensor, Tensor, Tensor | None], tuple[Latent, Tensor]]


class Step(NamedTuple):
    """One step of a loop over time; its inputs are the detached first outputs of the previous step."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


class LatentSequence(NamedTuple):
    """Sampled states of windows [batch, time], and log-probabilities [batch, time, latents, classes]."""

    latent: Latent
    posterior: Tensor
    prior: Tensor


def unimix_log_probs(logits: Tensor, share: float) -> Tensor:
    """Log-probabilities of a categorical mixed with a uniform distribution (unimix)."""
    uniform = share / logits.shape[-1]
    return ((1 - share) * logits.float().softmax(-1) + uniform).log()


def sample_one_hot(log_probs: Tensor, noise: Tensor | None) -> Tensor:
    """Samples one-hot classes with Gumbel noise; without noise takes the most likely class."""
    scores = log_probs if noise is None else log_probs + noise
    return one_hot(scores.argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)


def straight_through(sampled: Tensor, log_probs: Tensor) -> Tensor:
    """Straight-through estimator: the value of `sampled`, the gradient of the probabilities."""
    probs = log_probs.exp()
    return sampled + (probs - probs.detach())


def categorical_kl(log_probs: Tensor, others: Tensor) -> Tensor:
    """KL of categoricals [..., latents, classes]: sum of p * (log p - log q)."""
    return (log_probs.exp() * (log_probs - others)).sum((-2, -1))


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of categoricals [..., latents, classes], summed over the latents and averaged over states."""
    return -(log_probs.exp() * log_probs).sum((-2, -1)).mean()


class BackpropThroughTime(torch.autograd.Function):
    """Identity on the outputs [batch, time, ...] of a loop; its backward pass adds the gradients of later steps."""

    @staticmethod
    def forward(ctx: Any, steps: Sequence[Step], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.steps = steps
        return tuple(each.view_as(each) for each in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # Step by step for the states only; the weights then get their gradients from one product over all steps.
        later: Sequence[Tensor] = ()
        totals = []
        by_time = (each.movedim(1, 0).contiguous() for each in gradients)
        for step, *total in reversed([*zip(ctx.steps, *by_time, strict=True)]):
            for index, gradient in enumerate(later):
                total[index] = total[index] + gradient
            totals.append(total)
            later = torch.autograd.grad(step.outputs, step.inputs, total)
        return None, *(torch.stack(each[::-1], 1) for each in zip(*totals, strict=True))


def stack_time(steps: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Stacks the tensors [batch, ...] of steps to [batch, time, ...]."""
    return [torch.stack(each, 1) for each in zip(*steps, strict=True)]


def gated(sums: Tensor, state: Tensor) -> Tensor:
    """Next state of a GRU: u * tanh(sigmoid(r) * c) + (1 - u) * state, where u = sigmoid(sum - 1)."""
    reset, candidate, update = sums.chunk(3, -1)
    update = (update - 1).sigmoid()  # initially about 0.27, which keeps most of the state
    return update * (reset.sigmoid() * candidate).tanh() + (1 - update) * state


class NormedGRU(nn.Module):
    """GRU of the 2023 release, with a norm over the sums of its three gates."""

    def __init__(self, deter: int, hidden: int, stoch: int, action_dim: int, make: LayerFactory) -> None:
        super().__init__()
        both = stoch + action_dim  # one layer split by its two inputs: the action's part is outside the loop
        self.from_stoch = make.linear(stoch, hidden, bias=False, inputs=both)
        self.from_action = make.linear(action_dim, hidden, bias=False, inputs=both)
        self.norm = make.norm(hidden)
        self.gates = nn.Sequential(make.linear(deter + hidden, 3 * deter, bias=False), make.norm(3 * deter))

    def forward(self, latent: Latent, action: Tensor) -> Tensor:
        """Returns the next recurrent state; `action` is an output of `from_action`, computed outside the loop."""
        hidden = silu(self.norm(self.from_stoch(latent.stoch.flatten(-2)) + action))
        return gated(self.gates(torch.cat([latent.deter, hidden], -1)), latent.deter)


class BlockGRU(nn.Module):
    """GRU with a block-diagonal recurrent state; every block also sees a projection of the whole state."""

    def __init__(self, deter: int, hidden: int, stoch: int, action_dim: int, *, blocks: int) -> None:
        super().__init__()
        self.blocks, width = blocks, deter // blocks
        make = LAYERS_2024
        self.from_deter, self.from_stoch = make.dense(deter, hidden), make.dense(stoch, hidden)
        self.from_action = make.dense(action_dim, hidden)
        # One layer split by its two inputs, because the second input is the same for all blocks.
        both = blocks * (width + 3 * hidden)
        self.from_block = block_linear(blocks, width, width, inputs=both)
        self.from_inputs = make.linear(3 * hidden, deter, bias=False, inputs=both)
        self.norm, self.gates = RMSNorm(deter), block_linear(blocks, width, 3 * width)

    def forward(self, latent: Latent, action: Tensor) -> Tensor:
        """Returns the next recurrent state; `action` is an output of `from_action`, computed outside the loop."""
        deter, stoch = latent.deter, latent.stoch.flatten(-2)
        inputs = torch.cat([self.from_deter(deter), self.from_stoch(stoch), action], -1)
        blocks = self._split(deter)
        hidden = silu(self.norm(self._join(self.from_block(blocks)) + self.from_inputs(inputs)))
        return self._join(gated(self.gates(self._split(hidden)), blocks))

    def _split(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (self.blocks, -1)).transpose(0, 1)

    def _join(self, blocks: Tensor) -> Tensor:
        return blocks.transpose(0, 1).flatten(1)


class RSSM(nn.Module):
    """`observe` computes posterior states from observations; `predict` continues from a state with the prior.

    In the 2023 release the recurrent network is a plain GRU, its initial state is learned, and the prior has one
    hidden layer instead of two.
    """

    initial: nn.Parameter | None  # the initial recurrent state before tanh; None: zeros

    def __init__(
        self, embedded: int, action_dim: int, *, deter: int, hidden: int, latents: int, classes: int, blocks: int,
        make: LayerFactory = LAYERS_2024,
    ) -> None:  # fmt: skip
        super().__init__()
        self.deter, self.shape, stoch = deter, (latents, classes), latents * classes
        self.cell: NormedGRU | BlockGRU
        if make.is_2023:
            self.cell = NormedGRU(deter, hidden, stoch, action_dim, make)
        else:
            self.cell = BlockGRU(deter, hidden, stoch, action_dim, blocks=blocks)
        both = embedded + deter  # one layer split by its two inputs: the observation's part is outside the loop
        self.seen = make.linear(embedded, hidden, bias=make.bias, inputs=both)
        self.recalled = make.linear(deter, hidden, bias=False, inputs=both)
        self.posterior = nn.Sequential(make.norm(hidden), nn.SiLU(), make.linear(hidden, stoch))
        self.prior = make.mlp((deter, *[hidden] * (1 if make.is_2023 else 2), stoch))
        self.initial = nn.Parameter(torch.zeros(deter)) if make.is_2023 else None

    def noise(self, *rows: int, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise of `sample_one_hot` for [*rows] states."""
        return gumbel((*rows, *self.shape), like.device, generator)

    def observe(
        self, embedded: Tensor, actions: Tensor, is_first: Tensor, start: Latent, noise: Tensor | None,
        step: PosteriorStep | None = None,
    ) -> LatentSequence:  # fmt: skip
        """Posterior states of windows [batch, time, ...]; `actions` are those before each observation."""
        # `start` is the state before the first observation; `is_first` resets the state. The loop over time holds only
        # the recurrent state and the sampling of latents. `step` may be a compiled `step_with_weights`.
        first = is_first.bool().unsqueeze(-1)
        actions, seen = self.cell.from_action(actions.masked_fill(first, 0)), self.seen(embedded)
        noises = [None] * embedded.shape[1] if noise is None else noise.unbind(1)
        inputs = (first, actions, seen)
        if step is not None:
            latent, posterior = self._observe_in_steps(step, start, inputs, noises)
        else:
            states = []
            for current in zip(*(each.unbind(1) for each in inputs), noises, strict=True):
                start, posterior = self.posterior_step(start, *current)
                states.append((*start, posterior))
            deter, stoch, posterior = stack_time(states)
            latent = Latent(deter, stoch)
        return LatentSequence(latent, posterior, self.log_probs(self.prior(latent.deter)))

    def _observe_in_steps(
        self, step: PosteriorStep, start: Latent, inputs: Sequence[Tensor], noises: Sequence[Tensor | None]
    ) -> tuple[Latent, Tensor]:
        """Runs `step`, which has no gradients for the weights, then computes those gradients for all steps at once."""
        steps = []
        for current in zip(*(each.detach().unbind(1) for each in inputs), noises, strict=True):
            previous = Latent(*(each.detach().requires_grad_() for each in start))
            start, posterior = step(previous, *current)
            steps.append(Step(previous, (*start, posterior)))
        _, sampled, _ = stack_time(each.outputs for each in steps)
        previous = Latent(*stack_time(each.inputs for each in steps)).flat()
        recomputed = self.posterior_of(previous, *(each.flatten(0, 1) for each in inputs))
        deter, posterior = (each.unflatten(0, sampled.shape[:2]) for each in recomputed)
        stoch = straight_through(sampled.detach(), posterior)
        deter, stoch, posterior = BackpropThroughTime.apply(steps, deter, stoch, posterior)
        return Latent(deter, stoch), posterior

    def posterior_step(
        self, latent: Latent, first: Tensor, action: Tensor, seen: Tensor, noise: Tensor | None
    ) -> tuple[Latent, Tensor]:
        """Returns the sampled state after one more observation, and its posterior."""
        deter, posterior = self.posterior_of(latent, first, action, seen)
        return Latent(deter, straight_through(sample_one_hot(posterior, noise), posterior)), posterior

    forward = posterior_step

    def step_with_weights(self, weights: dict[str, Tensor], *inputs: Any) -> tuple[Latent, Tensor]:
        """`posterior_step` with the weights of `detached_weights`."""
        return functional_call(self, weights, inputs)

    def detached_weights(self) -> dict[str, Tensor]:
        """Detached weights; matrices are cast to the autocast precision once instead of at every step."""
        device = self.seen.weight.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        return {name: weight.detach().to(low if weight.dim() > 1 else None) for name, weight in self.named_parameters()}

    def posterior_of(self, latent: Latent, first: Tensor, action: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the next recurrent state [..., deter] and the posterior of its latents."""
        deter = self.cell(self.reset(latent, first), action)
        return deter, self.log_probs(self.posterior(self.recalled(deter) + seen))

    def reset(self, latent: Latent, first: Tensor) -> Latent:
        """Resets first steps to the initial state: zeros, or tanh(initial) and its most likely latents."""
        if self.initial is None:
            return Latent(latent.deter.masked_fill(first, 0), latent.stoch.masked_fill(first.unsqueeze(-1), 0))
        deter = self.initial.tanh()
        stoch = sample_one_hot(self.log_probs(self.prior(deter.detach())), None)
        return Latent(torch.where(first, deter, latent.deter), torch.where(first.unsqueeze(-1), stoch, latent.stoch))

    def predict(self, latent: Latent, action: Tensor, noise: Tensor | None) -> Latent:
        """Samples the next state [rows, ...] from the prior, with straight-through gradients."""
        deter = self.cell(latent, self.cell.from_action(action))
        prior = self.log_probs(self.prior(deter))
        return Latent(deter, straight_through(sample_one_hot(prior, noise), prior))

    def log_probs(self, logits: Tensor) -> Tensor:
        return unimix_log_probs(logits.unflatten(-1, self.shape), UNIMIX)
