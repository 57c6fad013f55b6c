"""Gradient updates of one learner or of a population; the only module that uses optimizers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from rl_training.algorithms.core.broadcasts import WatchedLoss
from rl_training.algorithms.core.flat import FlatLosses
from rl_training.algorithms.core.fused import FusedUpdates, can_fuse
from rl_training.algorithms.core.graphs import CapturedUpdates, side_by_side
from rl_training.algorithms.core.loss_checks import checked_loss
from rl_training.algorithms.core.optimizer import Optimizer, clip_gradients, piece_size, pieces
from rl_training.algorithms.core.population import Population
from rl_training.messages import did_you_mean
from rl_training.models.unit_norm import project_, unit_norm_axes
from rl_training.types import HALTED, Batch, Loss, ParameterGroup, Source, Trainable, UpdateResult


class Updater:
    """Minimises the losses of one learner, or of several stacked along a leading member axis."""

    reads_values = True  # may branch on values of tensors on the CPU

    def __init__(self, learners: Sequence[Trainable], *, compile: bool = False, capture: bool = False) -> None:
        first = learners[0]
        self.learner, self.members, self.updates = first, len(learners), 0
        self.population = Population(learners) if self.members > 1 else None
        self.params = self.population.params if self.population else dict(first.named_parameters())
        self.buffers = self.population.buffers if self.population else dict(first.named_buffers())
        self.loss: Callable[[Batch, str], Loss] = self.population.loss if self.population else first.__call__
        self.device = next(iter(self.params.values())).device
        self.halted = self.buffers.get(HALTED)
        if self.halted is not None and self.population:
            raise ValueError(f'a learner with the buffer "{HALTED}" cannot be a member of a population')
        self.groups = self._groups()
        generated = compile and self.device.type == "cuda" and self.halted is None
        self.optimizers = [
            Optimizer([self.params[name] for name in names], group, compile=generated, by_member=self.members > 1)
            for group, names in self.groups
        ]
        self.unit_norm = self.normalised()
        self.target_params, self.online_params = self.target_pairs()
        self._accelerate(compile=compile, capture=capture)

    def normalised(self) -> list[tuple[Tensor, int]]:
        """Weights whose vectors keep length 1, with the axis of the vectors."""
        axes = unit_norm_axes(self.learner)
        return [(self.params[name], axes[name]) for _, names in self.groups for name in names if name in axes]

    def target_pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters of target networks, and those that they follow; in pieces on a GPU."""
        targets = [name for name in self.params if name.startswith("target.")]
        followed = [self.params[name.replace("target.", "model.", 1)] for name in targets]
        slow = [self.params[name] for name in targets]
        size = piece_size(slow) if self.device.type == "cuda" else None
        return pieces(slow, size), pieces(followed, size)

    def _accelerate(self, *, compile: bool, capture: bool) -> None:
        """Compiles or traces the loss and captures whole updates; results are equal, compiled ones up to rounding."""
        learner = self.learner
        self.flat: FlatLosses | None = None
        self.fused: FusedUpdates | None = None
        if compile and can_fuse(self):
            self.fused = FusedUpdates(self)
        elif compile:
            own = getattr(learner, "compiled", None)  # a learner may define how
            self.loss = compiled(self.loss, self.device) if own is None else own(self.loss)
        elif self.device.type == "cpu" and not self.population and getattr(learner, "is_traceable", False):
            trained = [parameter for optimizer in self.optimizers for parameter in optimizer.params]
            self.flat = FlatLosses(self.loss, trained)
        elif not getattr(learner, "is_built_in", True):
            self.loss = WatchedLoss(self.loss, learner)
        self.captured = CapturedUpdates(self) if capture else None
        self.parts: tuple[str, ...] = getattr(learner, "separate_parts", tuple)() if capture else ()
        self.streams = [torch.cuda.Stream(self.device) for _ in self.parts[1:]]

    def update(self, batch: Batch) -> UpdateResult:
        """Updates once with the given batch."""
        result = self.step(batch, self.learner.phases(self.updates))
        self.updates += 1
        return result

    def run(self, source: Source, count: int) -> UpdateResult:
        """Samples and updates `count` times; returns the metrics of the last update."""
        if self.captured is not None and source.samples_on_device:
            return UpdateResult(self.captured.run(source, count), count)
        result = UpdateResult({}, 0)
        for done in range(1, count + 1):
            result = self.step_from(
                source, self.learner.phases(self.updates), wants_metrics=done == count or self.halted is not None
            )
            self.updates += 1
            # Skipped updates stop the loop on the CPU only; on a GPU the check would synchronise.
            if self.halted is not None and self.device.type == "cpu" and self.halted:
                return result._replace(num_gradient_steps=done)
        return result._replace(num_gradient_steps=count)

    def step_from(self, source: Any, phases: tuple[str, ...], *, wants_metrics: bool = True) -> UpdateResult:
        """Samples a batch, updates on it, and writes priorities (by `slots`) or latents (by `rows`) to the source.

        Without `wants_metrics`, the result may lack them, which takes less time.
        """
        batch = source.sample(self.learner.config.batch_size, () if self.members == 1 else (self.members,))
        result = self.step(batch, phases, wants_metrics=wants_metrics)
        if "slots" in batch:
            if result.priorities is None:
                raise ValueError('prioritised replay needs priorities. Return them in Loss.rows["priorities"]')
            source.set_priorities(batch["slots"], result.priorities)
        if "rows" in batch and result.latents:
            source.write_back(batch["rows"], result.latents)
        return result

    def step(self, batch: Batch, phases: tuple[str, ...], *, wants_metrics: bool = True) -> UpdateResult:
        """Updates once on a batch. It never synchronises with the host, so that it can be captured."""
        if self.fused is not None:
            return self.fused(batch, phases)
        metrics, rows = dict[str, Tensor](), dict[str, Tensor]()
        for phase in phases:
            if phase == "targets":
                with torch.no_grad():
                    torch._foreach_lerp_(self.target_params, self.online_params, self.learner.config.tau)
            else:
                for loss in self._minimise(batch, phase, wants_metrics):
                    metrics |= {name: value.detach() for name, value in {**loss.terms, **loss.metrics}.items()}
                    rows |= {name: value.detach() for name, value in loss.rows.items()}
        return UpdateResult(metrics, 1, rows.pop("priorities", None), rows)

    def _minimise(self, batch: Batch, phase: str, wants_metrics: bool) -> list[Loss]:
        """Takes one optimizer step on the loss of this phase; returns the loss, or the losses of its parts."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if self.parts and phase == "loss":
            losses = side_by_side([partial(self._backward, batch, part) for part in self.parts], self.streams)
        else:
            losses = [self._backward(batch, phase, wants_metrics)]
        for group, names in self.groups:
            if group.max_grad_norm is not None:
                params = [self.params[name] for name in names]
                clip_gradients(params, group.max_grad_norm, by_member=self.members > 1, reads_values=self.reads_values)
        with torch.no_grad():
            for name, value in ((name, value) for loss in losses for name, value in loss.buffers.items()):
                self.buffers[name].copy_(value)
        for optimizer in self.optimizers:
            optimizer.step(self.halted)
        for weight, axis in self.unit_norm:
            if weight.grad is not None:
                project_(weight, axis)
        return losses

    def _backward(self, batch: Batch, phase: str, wants_metrics: bool = True) -> Loss:
        """Computes the loss of this phase and its gradients."""
        if self.flat is not None:
            return self.flat(batch, phase, wants_metrics)
        try:
            found = self.loss(batch, phase)
        except Exception as error:
            if (plain := self._plain_error(error, batch, phase)) is None:
                raise
            raise plain from None
        loss = checked_loss(found, self.learner, phase, dims=int(self.population is not None))
        (loss.total.sum() if self.population else loss.total).backward()  # members share no parameters
        return loss

    def _plain_error(self, error: Exception, batch: Batch, phase: str) -> Exception | None:
        """Repeats a failed loss, without compilation and for one member, for a plain message."""
        try:
            if isinstance(error, KeyError) or type(error).__module__.startswith("torch._dynamo"):
                self.learner(Columns({k: rows[0] if self.population else rows for k, rows in batch.items()}), phase)
            return None
        except Exception as plain:
            return plain

    def schedule(self, name: str, value: float) -> None:
        """Sets `learning_rate` (all groups in proportion), the learning rate of one group, or a buffer."""
        rates = {group.rate: group.learning_rate for group, _ in reversed(self.groups)}
        if name in self.buffers:
            self.buffers[name].fill_(value)
        elif name not in rates:
            raise ValueError(f"cannot schedule {name!r}. Choose one of {', '.join([*rates, *self.buffers])}")
        for (group, _), optimizer in zip(self.groups, self.optimizers, strict=True):
            if name in ("learning_rate", group.rate):
                optimizer.rate.fill_(value * group.learning_rate / rates[name])

    def reset_rates(self) -> None:
        """Sets the learning rates to those of the options, as they are before any schedule."""
        for (group, _), optimizer in zip(self.groups, self.optimizers, strict=True):
            optimizer.rate.fill_(group.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """All state of updates; `noise` is the state of the device's default generator."""
        noise = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()
        names = [name for _, members in self.groups for name in members]
        states = [state for optimizer in self.optimizers for state in optimizer.state()]
        parameters = {name: value.detach() for name, value in self.params.items()}
        return {
            "updates": self.updates, "parameters": parameters, "buffers": dict(self.buffers),
            "optimizer": dict(zip(names, states, strict=True)),
            "rates": [optimizer.rate for optimizer in self.optimizers], "noise": noise,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads in place, so that captured graphs stay valid."""
        self._load(self.state_dict(), state)

    def rewind(self, state: dict[str, Any]) -> None:
        """Loads the state from before trial updates, and drops their gradients and captured graphs."""
        self.load_state_dict(state)
        for each in self.optimizers:
            each.zero_grad()
        if self.captured is not None:
            self.captured = CapturedUpdates(self)

    def member_state(self, member: int) -> dict[str, Any]:
        """State of one member in the format of a single learner's `state_dict`."""
        state = self.state_dict()
        if self.members > 1:
            for part in ("parameters", "buffers"):
                state[part] = {name: stacked[member] for name, stacked in state[part].items()}
            state["optimizer"] = {  # the step count is shared by all members
                name: {key: tensor if key == "step" else tensor[member] for key, tensor in tensors.items()}
                for name, tensors in state["optimizer"].items()
            }
        return state

    def load_member_state(self, member: int, state: dict[str, Any]) -> None:
        """Loads one member's slices in place; counters, learning rates and noise are shared by all members."""
        self._load(self.member_state(member), state)

    @torch.no_grad()
    def _load(self, current: dict[str, Any], state: dict[str, Any]) -> None:
        for part in ("parameters", "buffers"):
            load_tensors(current[part], state[part])
        for name, tensors in current["optimizer"].items():
            load_tensors(tensors, state["optimizer"][name])
        self.updates = state["updates"]
        if len(state["rates"]) == len(self.optimizers):  # else, other options form other groups, with their own rates
            for optimizer, rate in zip(self.optimizers, state["rates"], strict=True):
                optimizer.rate.copy_(rate)
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["noise"].cpu(), self.device)
        else:
            torch.set_rng_state(state["noise"])

    def _groups(self) -> list[tuple[ParameterGroup, list[str]]]:
        """Assigns each trained parameter to the first group with its prefix; () takes the rest."""
        rest = [name for name, parameter in self.params.items() if parameter.requires_grad]
        groups: list[tuple[ParameterGroup, list[str]]] = []
        for group in self.learner.parameter_groups():
            names = [name for name in rest if not group.names or name.startswith(group.names)]
            groups.append((group, names))
            rest = [name for name in rest if name not in names]
        if rest:
            raise ValueError(f"parameter_groups() has no group for {rest}")
        return groups


def compiled(loss: Callable[..., Loss], device: torch.device) -> Callable[..., Loss]:
    """Compiles for fixed shapes; dynamic shapes, guessed after another learner was compiled, would fail."""
    options: Any = {"combo_kernels": True} if device.type == "cuda" else None  # joins small independent kernels
    return torch.compile(loss, fullgraph=True, dynamic=False, options=options)


class Columns(dict[str, Tensor]):
    """A batch whose error for a missing column lists the columns and suggests one."""

    def __missing__(self, key: str) -> NoReturn:
        from rl_training.data.readers.names import SPELLINGS  # names of columns in files

        meant = next((name for name, spellings in SPELLINGS.items() if key in spellings and name in self), None)
        hint = did_you_mean(str(key), self) if meant is None else f"; did you mean {meant!r}?"
        raise LookupError(f"no {key!r} among the columns of the batch ({', '.join(sorted(self))}){hint}")


@torch.no_grad()
def load_tensors(tensors: dict[str, Tensor], loaded: dict[str, Tensor]) -> None:
    """Copies `loaded` into `tensors` in place; names and shapes must be equal."""
    if tensors.keys() != loaded.keys():
        missing, unknown = sorted(tensors.keys() - loaded.keys()), sorted(loaded.keys() - tensors.keys())
        raise ValueError(f"the saved tensors do not match this learner: missing {missing}, unknown {unknown}")
    for name, tensor in tensors.items():
        if tensor.shape != loaded[name].shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, saved as {tuple(loaded[name].shape)}")
    for name, tensor in tensors.items():
        tensor.copy_(loaded[name])
