"""Optimizer steps on one learner, or on many seeds of it at once: the only place that knows optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from rl_training.algorithms.core.graphs import CapturedUpdates
from rl_training.algorithms.core.optimizer import Optimizer
from rl_training.algorithms.core.population import Population
from rl_training.types import (
    SKIP_UPDATES,
    Batch,
    Loss,
    Metrics,
    PrioritizedSource,
    SequenceSource,
    Source,
    Trainable,
    UpdateResult,
)


class Updater:
    """Descends the losses of one learner, or of several of the same kind stacked along a leading member axis."""

    def __init__(self, learners: Sequence[Trainable], *, compile: bool = False, capture: bool = False) -> None:
        first = learners[0]
        self.learner, self.members, self.updates = first, len(learners), 0
        self.population = Population(learners) if self.members > 1 else None
        self.params = self.population.params if self.population else dict(first.named_parameters())
        self.buffers = self.population.buffers if self.population else dict(first.named_buffers())
        self.loss: Callable[[Batch, str], Loss] = self.population.loss if self.population else first.__call__
        if compile:
            self.loss = getattr(first, "compiled", compiled)(self.loss)  # a learner may know better what is worth it
        self.device = next(iter(self.params.values())).device
        self.halted = self.buffers.get(SKIP_UPDATES)
        if self.halted is not None and self.population:
            raise ValueError("a learner that can halt its updates is updated alone, not as one of several members")
        self.captured = CapturedUpdates(self) if capture else None
        self.groups = list(zip(first.parameter_groups(), self._names_by_group(), strict=True))
        self.optimizers = [Optimizer([self.params[name] for name in names], group) for group, names in self.groups]
        slow = [name for name in self.params if name.startswith("target.")]
        self.slow = [self.params[name] for name in slow]
        self.fast = [self.params[name.replace("target.", "model.", 1)] for name in slow]

    def update(self, batch: Batch) -> UpdateResult:
        result = self.step(batch, self.learner.phases(self.updates))
        self.updates += 1
        return result

    def run(self, source: Source, count: int) -> UpdateResult:
        """Sample and update, `count` times or until halted; the metrics are those of the last one."""
        if self.captured is not None and source.samples_on_device:
            return UpdateResult(self.captured.run(source, count), count)
        result = UpdateResult({}, 0)
        for done in range(1, count + 1):
            result = self.step_from(source, self.learner.phases(self.updates))
            self.updates += 1
            # an accelerator would be waited for; there the rest is run through and comes to nothing
            if self.halted is not None and self.device.type == "cpu" and self.halted:
                return result._replace(num_gradient_steps=done)
        return result._replace(num_gradient_steps=count)

    def step_from(self, source: Source, phases: tuple[str, ...]) -> UpdateResult:
        """A step on rows drawn here; a source that asks what was found at its rows is told."""
        batch = source.sample(self.learner.config.batch_size, () if self.members == 1 else (self.members,))
        result = self.step(batch, phases)
        if "slots" in batch:
            if result.priorities is None:
                raise ValueError('the rows are drawn by priorities, and the loss has none in rows["priorities"]')
            cast(PrioritizedSource, source).set_priorities(batch["slots"], result.priorities)  # no other names slots
        if "rows" in batch and result.latents:
            cast(SequenceSource, source).write_back(batch["rows"], result.latents)  # no other names rows
        return result

    def step(self, batch: Batch, phases: tuple[str, ...]) -> UpdateResult:
        """Tensors in, tensors out: no number is read on the host, so that it can be captured."""
        metrics: Metrics = {}
        rows: Metrics = {}
        for phase in phases:
            if phase == "targets":
                with torch.no_grad():  # else the slow copy would keep the history of every move
                    torch._foreach_lerp_(self.slow, self.fast, self.learner.config.tau)
            else:
                loss = self.loss(batch, phase)
                metrics |= self._descend(loss)
                rows |= {name: value.detach() for name, value in loss.rows.items()}
        return UpdateResult(metrics, 1, rows.pop("priorities", None), rows)

    def _descend(self, loss: Loss) -> Metrics:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        total = loss.total
        (total.sum() if self.population else total).backward()  # members share none, so each gets its own gradient
        for group, names in self.groups:
            if group.max_grad_norm is not None:
                clip_gradients([self.params[name] for name in names], group.max_grad_norm, by_member=self.members > 1)
        with torch.no_grad():
            for name, value in loss.buffers.items():
                self.buffers[name].copy_(value)
        for optimizer in self.optimizers:
            optimizer.step(self.halted)
        return {name: value.detach() for name, value in {**loss.terms, **loss.metrics}.items()}

    def schedule(self, name: str, value: float) -> None:
        """Set a number that moves: `learning_rate` (of every group, in proportion), one group's rate, or a buffer."""
        rates = {group.rate: group.learning_rate for group, _ in reversed(self.groups)}
        if name in self.buffers:
            self.buffers[name].fill_(value)
        elif name not in rates:
            raise ValueError(f"cannot schedule {name!r}; there are {', '.join([*rates, *self.buffers])}")
        for (group, _), optimizer in zip(self.groups, self.optimizers, strict=True):
            if name in ("learning_rate", group.rate):
                optimizer.rate.fill_(value * group.learning_rate / rates[name])

    def state_dict(self) -> dict[str, Any]:
        """Everything an update reads or moves, by name; the noise is the device's default generator."""
        noise = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()
        return {
            "updates": self.updates,
            "parameters": {name: value.detach() for name, value in self.params.items()},
            "buffers": dict(self.buffers),
            "optimizer": self._optimizer_state(),
            "rates": [optimizer.rate for optimizer in self.optimizers],
            "noise": noise,
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load in place, so that captured memory stays valid."""
        load_tensors(self.params, state["parameters"])
        load_tensors(self.buffers, state["buffers"])
        for name, held in self._optimizer_state().items():
            load_tensors(held, state["optimizer"][name])
        self._load_shared(state)

    def member_state(self, member: int) -> dict[str, Any]:
        """The state that this member would have as the one learner of an updater of its own."""
        whole = self.state_dict()
        if self.members > 1:
            for part in ("parameters", "buffers"):
                whole[part] = {name: together[member] for name, together in whole[part].items()}
            whole["optimizer"] = {
                name: {key: value if key == "step" else value[member] for key, value in state.items()}
                for name, state in whole["optimizer"].items()
            }
        return whole

    @torch.no_grad()
    def load_member_state(self, member: int, state: dict[str, Any]) -> None:
        """Load one member's slices in place; counters, rates and noise are common, so the last loaded decides."""
        if self.members == 1:
            self.load_state_dict(state)
            return
        load_tensors({name: together[member] for name, together in self.params.items()}, state["parameters"])
        load_tensors({name: together[member] for name, together in self.buffers.items()}, state["buffers"])
        for name, held in self._optimizer_state().items():
            mine = {key: together if key == "step" else together[member] for key, together in held.items()}
            load_tensors(mine, state["optimizer"][name])
        self._load_shared(state)

    def _load_shared(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        for optimizer, rate in zip(self.optimizers, state["rates"], strict=True):
            optimizer.rate.copy_(rate)
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["noise"].cpu(), self.device)
        else:
            torch.set_rng_state(state["noise"])

    def _optimizer_state(self) -> dict[str, dict[str, Tensor]]:
        return {
            name: state
            for (_, names), optimizer in zip(self.groups, self.optimizers, strict=True)
            for name, state in zip(names, optimizer.state(), strict=True)
        }

    def _names_by_group(self) -> list[list[str]]:
        """Each trained parameter in the first group whose prefix it has; () takes the rest."""
        left = [name for name, parameter in self.params.items() if parameter.requires_grad]
        chosen: list[list[str]] = []
        for group in self.learner.parameter_groups():
            mine = [name for name in left if not group.names or name.startswith(group.names)]
            left = [name for name in left if name not in mine]
            chosen.append(mine)
        if left:
            raise ValueError(f"no parameter group takes {left}")
        return chosen


def compiled(loss: Callable[..., Loss]) -> Callable[..., Loss]:
    """In one piece, and for the shapes at hand: to guess from another learner's that they vary would fail."""
    return torch.compile(loss, fullgraph=True, dynamic=False)


@torch.no_grad()
def load_tensors(held: dict[str, Tensor], loaded: dict[str, Tensor]) -> None:
    """Copy by name into tensors that stay where they are; names and shapes must be the same."""
    if held.keys() != loaded.keys():
        missing, unknown = sorted(held.keys() - loaded.keys()), sorted(loaded.keys() - held.keys())
        raise ValueError(f"the saved tensors are not those of this learner: missing {missing}, unknown {unknown}")
    for name, tensor in held.items():
        if tensor.shape != loaded[name].shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, saved as {tuple(loaded[name].shape)}")
    for name, tensor in held.items():
        tensor.copy_(loaded[name])


@torch.no_grad()
def clip_gradients(params: Sequence[Tensor], max_norm: float, *, by_member: bool) -> None:
    """Shrink gradients to a norm of at most `max_norm`: over all of them, or for each member over its own."""
    grads = [parameter.grad for parameter in params if parameter.grad is not None]
    if not grads:  # a phase may leave a whole group alone
        return
    if by_member:
        squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads]).sum(0)
        scale = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(scale.view(-1, *[1] * (grad.dim() - 1)))
    else:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp(max=1.0))
