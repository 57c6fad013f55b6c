"""The recurrent state-space model (Hafner et al., 2019, 2023): a memory, and categorical latents of what is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot, silu

from rl_training.models.heads import gumbel
from rl_training.models.normed import RMSNorm, block_linear, dense, linear, normed_mlp

UNIMIX = 0.01  # share of every latent's distribution that is even, so that no divergence is infinite


class Latent(NamedTuple):
    """A state of the world as the model holds it: a memory, and one class of each latent as a one-hot vector."""

    deter: Tensor  # [..., deter]
    stoch: Tensor  # [..., latents, classes]

    @property
    def features(self) -> Tensor:
        return torch.cat([self.deter, self.stoch.flatten(-2)], -1)

    def flat(self) -> Latent:
        """Rows of batch and time, without gradients."""
        return Latent(self.deter.detach().flatten(0, 1), self.stoch.detach().flatten(0, 1))


SeenStep = Callable[[Latent, Tensor, Tensor, Tensor, Tensor | None], tuple[Latent, Tensor]]


class Step(NamedTuple):
    """One of a loop through time; its inputs are the first outputs of the step before, cut off from it."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


class Beliefs(NamedTuple):
    """What the model made of windows [batch, time]: states drawn, and log-probabilities [..., latents, classes]."""

    latent: Latent
    posterior: Tensor  # having seen the observation
    prior: Tensor  # before


def mixed_log_probs(logits: Tensor, share: float) -> Tensor:
    """Log-probabilities of which an even distribution has this share."""
    even = share / logits.shape[-1]
    return ((1 - share) * logits.float().softmax(-1) + even).log()


def draw(log_probs: Tensor, noise: Tensor | None) -> Tensor:
    """One class each as a one-hot vector: by Gumbel noise, or without it the most likely."""
    scores = log_probs if noise is None else log_probs + noise
    return one_hot(scores.argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)


def straight_through(drawn: Tensor, log_probs: Tensor) -> Tensor:
    """What was drawn, to the bit, with the gradient of its probabilities."""
    probs = log_probs.exp()
    return drawn + (probs - probs.detach())


def divergence(log_probs: Tensor, others: Tensor) -> Tensor:
    """KL of categoricals [..., latents, classes], summed over the latents."""
    return (log_probs.exp() * (log_probs - others)).sum((-2, -1))


class ThroughTime(torch.autograd.Function):
    """Outputs [batch, time, ...] of the steps of a loop, as they are; to their gradients those of what followed are
    added, since a state counts by what the next ones make of it as well.

    Going back step by step for the states alone leaves the gradients of the weights to one product for all steps.
    """

    @staticmethod
    def forward(ctx: Any, steps: Sequence[Step], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.steps = steps
        return tuple(each.view_as(each) for each in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        later: Sequence[Tensor] = ()
        totals = []
        by_time = (each.movedim(1, 0).contiguous() for each in gradients)
        for step, *total in reversed([*zip(ctx.steps, *by_time, strict=True)]):
            for index, carried in enumerate(later):
                total[index] = total[index] + carried
            totals.append(total)
            later = torch.autograd.grad(step.outputs, step.inputs, total)
        return None, *(torch.stack(each[::-1], 1) for each in zip(*totals, strict=True))


def stacked(steps: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Each of the tensors of steps [batch, ...] as one [batch, time, ...]."""
    return [torch.stack(each, 1) for each in zip(*steps, strict=True)]


class BlockGRU(nn.Module):
    """A GRU whose memory is in blocks: all see the inputs, and of the memory each sees its own part and a summary."""

    def __init__(self, deter: int, hidden: int, stoch: int, action_dim: int, *, blocks: int) -> None:
        super().__init__()
        self.blocks, width = blocks, deter // blocks
        self.from_deter, self.from_stoch = dense(deter, hidden), dense(stoch, hidden)
        self.from_action = dense(action_dim, hidden)
        # One layer of two inputs, in two parts: all blocks see the same of the second.
        both = blocks * (width + 3 * hidden)
        self.from_block = block_linear(blocks, width, width, inputs=both)
        self.from_inputs = linear(3 * hidden, deter, bias=False, inputs=both)
        self.norm, self.gates = RMSNorm(deter), block_linear(blocks, width, 3 * width)

    def forward(self, latent: Latent, action: Tensor) -> Tensor:
        """The next memory; `action` has been through `from_action`, which needs no loop over time."""
        deter, stoch = latent.deter, latent.stoch.flatten(-2)
        inputs = torch.cat([self.from_deter(deter), self.from_stoch(stoch), action], -1)
        memory = self._split(deter)
        hidden = silu(self.norm(self._join(self.from_block(memory)) + self.from_inputs(inputs)))
        reset, candidate, update = self.gates(self._split(hidden)).chunk(3, -1)
        update = (update - 1).sigmoid()  # so that in the beginning most is kept
        return self._join(update * (reset.sigmoid() * candidate).tanh() + (1 - update) * memory)

    def _split(self, rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (self.blocks, -1)).transpose(0, 1)

    def _join(self, blocks: Tensor) -> Tensor:
        return blocks.transpose(0, 1).flatten(1)


class RSSM(nn.Module):
    """`observe` goes through windows of what was seen and done; `predict` goes on from a state by actions alone."""

    def __init__(
        self, embedded: int, action_dim: int, *, deter: int, hidden: int, latents: int, classes: int, blocks: int
    ) -> None:
        super().__init__()
        self.deter, self.shape = deter, (latents, classes)
        self.cell = BlockGRU(deter, hidden, latents * classes, action_dim, blocks=blocks)
        both = embedded + deter  # one layer of two inputs, in two parts: what is seen does not wait for the memory
        self.seen, self.recalled = linear(embedded, hidden, inputs=both), linear(deter, hidden, bias=False, inputs=both)
        self.posterior = nn.Sequential(RMSNorm(hidden), nn.SiLU(), linear(hidden, latents * classes))
        self.prior = normed_mlp((deter, hidden, hidden, latents * classes))

    def noise(self, *rows: int, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What `draw` needs for so many states."""
        return gumbel((*rows, *self.shape), like.device, generator)

    def observe(
        self, embedded: Tensor, actions: Tensor, is_first: Tensor, start: Latent, noise: Tensor | None,
        step: SeenStep | None = None,
    ) -> Beliefs:  # fmt: skip
        """Windows [batch, time, ...] with the actions before each observation; `start` is the state before the first.

        Where `is_first`, nothing of what was before is left. Only the memory and the draw of the latents wait for the
        step before; all the rest is done for all steps at once. `step` may be `held_step` compiled.
        """
        first = is_first.bool().unsqueeze(-1)
        actions, seen = self.cell.from_action(actions.masked_fill(first, 0)), self.seen(embedded)
        noises = [None] * embedded.shape[1] if noise is None else noise.unbind(1)
        known = (first, actions, seen)
        if step is not None:
            latent, posterior = self._by_steps(step, start, known, noises)
        else:
            states = []
            for now in zip(*(each.unbind(1) for each in known), noises, strict=True):
                start, posterior = self.seen_step(start, *now)
                states.append((*start, posterior))
            deter, stoch, posterior = stacked(states)
            latent = Latent(deter, stoch)
        return Beliefs(latent, posterior, self.log_probs(self.prior(latent.deter)))

    def _by_steps(
        self, step: SeenStep, start: Latent, known: Sequence[Tensor], noises: Sequence[Tensor | None]
    ) -> tuple[Latent, Tensor]:
        """The same by a step that gives the weights no gradients: they get theirs of all steps together."""
        steps = []
        for now in zip(*(each.detach().unbind(1) for each in known), noises, strict=True):
            before = Latent(*(each.detach().requires_grad_() for each in start))
            start, posterior = step(before, *now)
            steps.append(Step(before, (*start, posterior)))
        _, drawn, _ = stacked(each.outputs for each in steps)
        before = Latent(*stacked(each.inputs for each in steps)).flat()
        again = self.believed(before, *(each.flatten(0, 1) for each in known))
        deter, posterior = (each.unflatten(0, drawn.shape[:2]) for each in again)
        stoch = straight_through(drawn.detach(), posterior)
        deter, stoch, posterior = ThroughTime.apply(steps, deter, stoch, posterior)
        return Latent(deter, stoch), posterior

    def seen_step(
        self, latent: Latent, first: Tensor, action: Tensor, seen: Tensor, noise: Tensor | None
    ) -> tuple[Latent, Tensor]:
        """The state after one more observation, and what was believed of it."""
        deter, posterior = self.believed(latent, first, action, seen)
        return Latent(deter, straight_through(draw(posterior, noise), posterior)), posterior

    forward = seen_step

    def held_step(self, weights: dict[str, Tensor], *inputs: Any) -> tuple[Latent, Tensor]:
        """The same by weights as `held` gives them."""
        return functional_call(self, weights, inputs)

    def held(self) -> dict[str, Tensor]:
        """The weights without gradients, and those of products as precise as products are to be: once for all steps."""
        device = self.seen.weight.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        return {name: weight.detach().to(low if weight.dim() > 1 else None) for name, weight in self.named_parameters()}

    def believed(self, latent: Latent, first: Tensor, action: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The memory after one more observation of states [..., deter], and what is believed of their latents."""
        before = Latent(latent.deter.masked_fill(first, 0), latent.stoch.masked_fill(first.unsqueeze(-1), 0))
        deter = self.cell(before, action)
        return deter, self.log_probs(self.posterior(self.recalled(deter) + seen))

    def predict(self, latent: Latent, action: Tensor, noise: Tensor | None) -> Latent:
        """The state [rows, ...] after this action, unseen."""
        deter = self.cell(latent, self.cell.from_action(action))
        return Latent(deter, draw(self.log_probs(self.prior(deter)), noise))

    def log_probs(self, logits: Tensor) -> Tensor:
        return mixed_log_probs(logits.unflatten(-1, self.shape), UNIMIX)
