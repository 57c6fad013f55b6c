"""Updates on a CPU as compiled programs: loss, gradients, clipping, Adam and target networks together.

The updater itself is traced: a copy of it takes one step on tensors that record their operations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rl_training.types import Batch, ParameterGroup, UpdateResult

OPTIONS = {
    "fallback_random": True,  # random numbers of PyTorch's default generator, the same as without compilation
    "size_asserts": False,  # programs are kept for one layout of their inputs; the checks take 5% of a small update
}
Tensors = dict[Any, Tensor]


def can_fuse(updater: Any) -> bool:
    """Whether updates are those of a single learner of the library with plain Adam or AdamW, on a CPU."""
    is_plain = all(
        (group.kind == "adamw" or (group.kind == "adam" and not group.weight_decay))
        and not group.warm_up and group.max_grad_ratio is None
        for group, _ in updater.groups
    )  # fmt: skip
    is_single = updater.device.type == "cpu" and updater.population is None and updater.halted is None
    return is_plain and is_single and getattr(updater.learner, "is_traceable", False)


class FusedUpdates:
    """Runs the updates of one learner; results are equal up to rounding, random numbers bit for bit.

    There is one program for each phase and each layout of the batch. Programs read and write the tensors of the
    updater.
    """

    def __init__(self, updater: Any) -> None:
        self.updater = updater
        self.programs: dict[Any, Callable[..., UpdateResult]] = {}
        self.state: Tensors = {}
        self.places: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedUpdates:
        return FusedUpdates(copy.deepcopy(self.updater, memo))  # its programs must work on its own tensors

    def __call__(self, batch: Batch, phases: tuple[str, ...]) -> UpdateResult:
        places = list(map(Tensor.data_ptr, (*self.updater.params.values(), *self.updater.buffers.values())))
        if places != self.places:  # also after `param.data = ...`
            state = _state(self.updater)
            if _layout(state) != _layout(self.state):
                self.programs.clear()
            self.state, self.places = state, places
        layout = _layout(batch)
        results = []
        for phase in phases:
            program = self.programs.get((phase, layout))
            if program is None:
                program = self.programs[phase, layout] = self._program(batch, phase)
            with torch.no_grad():
                for number, optimizer in enumerate(self.updater.optimizers):
                    _set_scales(optimizer, self.state["scales", number])
                results.append(program(*self.state.values(), *batch.values()))
        return results[0] if len(results) == 1 else _joined(results)

    def _program(self, batch: Batch, phase: str) -> Callable[..., UpdateResult]:
        from torch._inductor import compile as compile_graph  # takes seconds
        from torch.fx.experimental.proxy_tensor import make_fx

        size, results = len(self.state), list[UpdateResult]()

        def update(*tensors: Tensor) -> list[Tensor]:
            updater = _with_state(self.updater, dict(zip(self.state, tensors, strict=False)))
            result = updater.step(dict(zip(batch, tensors[size:], strict=True)), (phase,))
            results.append(result)
            return [each.detach() for each in _tensors_of(result)]

        inputs: list[Any] = [*self.state.values(), *batch.values()]
        with torch.random.fork_rng(devices=[]):
            graph = make_fx(update)(*(each.clone() for each in inputs))
            compiled = compile_graph(graph, inputs, options=OPTIONS)
        return lambda *tensors: _like(results[-1], compiled(*tensors))


def _layout(tensors: Mapping[Any, Tensor]) -> tuple[Any, ...]:
    return tuple((name, each.shape, each.stride(), each.dtype) for name, each in tensors.items())


def _state(updater: Any) -> Tensors:
    """The tensors that an update reads or writes."""
    found: Tensors = {("params", name): each.detach() for name, each in updater.params.items()}
    found |= {("buffers", name): each for name, each in updater.buffers.items()}
    for number, optimizer in enumerate(updater.optimizers):
        found |= {("counts", number): optimizer.counts, ("scales", number): torch.ones(len(optimizer.params), 3)}
        for name in ("means", "squares"):
            found |= {(name, number, index): each for index, each in enumerate(getattr(optimizer, name))}
    return found


def _with_state(updater: Any, state: Tensors) -> Any:
    """Returns a copy of the updater that works on these tensors, without reading values and by plain operations."""
    own = copy.copy(updater)
    own.fused, own.reads_values = None, False
    own.params = {
        name: state["params", name].detach().requires_grad_(each.requires_grad) for name, each in updater.params.items()
    }
    own.buffers = {name: state["buffers", name] for name in updater.buffers}
    own.optimizers = [
        _TracedAdam([own.params[name] for name in names], group, number, state)
        for number, (group, names) in enumerate(updater.groups)
    ]
    own.target_params, own.online_params = own.target_pairs()
    own.unit_norm = own.normalised()
    tensors = own.params | own.buffers
    own.loss = lambda batch, phase: functional_call(own.learner, tensors, (batch, phase), tie_weights=False)
    return own


class _TracedAdam:
    """A step of `Optimizer` with scales that are computed before.

    Otherwise the program would compute the powers of the averaging rates again for each entry of a parameter.
    """

    def __init__(self, params: list[Tensor], group: ParameterGroup, number: int, state: Tensors) -> None:
        self.params, self.group = params, group
        self.counts, self.scales = state["counts", number], state["scales", number]
        self.means = [state["means", number, index] for index in range(len(params))]
        self.squares = [state["squares", number, index] for index in range(len(params))]

    def zero_grad(self) -> None:
        for parameter in self.params:
            parameter.grad = None

    @torch.no_grad()
    def step(self, skip: None) -> None:
        beta1, beta2 = self.group.betas
        is_stepped = [parameter.grad is not None for parameter in self.params]
        self.counts.add_(torch.tensor(is_stepped, dtype=self.counts.dtype))
        for parameter, mean, square, scales in zip(self.params, self.means, self.squares, self.scales, strict=True):
            if parameter.grad is not None:
                rate, scale, decay = scales.unbind()
                if self.group.weight_decay:
                    parameter.mul_(decay)
                mean.lerp_(parameter.grad, 1 - beta1)
                square.lerp_(parameter.grad * parameter.grad, 1 - beta2)
                parameter.add_(mean / (square.sqrt() * scale + self.group.eps) * rate)


def _set_scales(optimizer: Any, scales: Tensor) -> None:
    """Sets the factors of the next step of each parameter: rate and root with Adam's bias corrections, and decay."""
    beta1, beta2 = optimizer.group.betas
    rate, counts = float(optimizer.rate), [count + 1 for count in optimizer.counts.tolist()]
    decay = 1 - rate * optimizer.group.weight_decay
    by_count = {count: (-rate / (1 - beta1**count), (1 - beta2**count) ** -0.5, decay) for count in set(counts)}
    if counts:
        scales.numpy()[:] = [by_count[count] for count in counts]  # faster than to copy a tensor


def _tensors_of(result: UpdateResult) -> list[Tensor]:
    priorities = [] if result.priorities is None else [result.priorities]
    return [*result.metrics.values(), *priorities, *result.latents.values()]


def _like(result: UpdateResult, tensors: Any) -> UpdateResult:
    """Returns a result of the same form with these tensors."""
    given = iter(tensors)
    metrics = {name: next(given) for name in result.metrics}
    priorities = None if result.priorities is None else next(given)
    return UpdateResult(metrics, result.num_gradient_steps, priorities, {name: next(given) for name in result.latents})


def _joined(results: list[UpdateResult]) -> UpdateResult:
    """Returns the result of an update of several phases."""
    priorities = next((each.priorities for each in results if each.priorities is not None), None)
    metrics = {name: value for each in results for name, value in each.metrics.items()}
    latents = {name: value for each in results for name, value in each.latents.items()}
    return UpdateResult(metrics, 1, priorities, latents)
