"""Functions of tensors as flat programs.

For small networks on a CPU, modules and autograd take longer than the arithmetic. A function that is called often is
therefore traced once, with its backward passes. The trace becomes Python code that calls the same operations in the
same order, so results are equal bit for bit.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rl_training.algorithms.core.flat_graph import positional_arguments, schema_name, simplify
from rl_training.types import Batch, Loss

TRACE_AFTER = 0.2  # seconds in a function, a few times as long as its trace takes
Gradients: TypeAlias = "list[Tensor | None]"


class Program:
    """Operations on its arguments and on tensors that must stay where they are in memory, such as parameters."""

    def __init__(self, run: Callable[..., Any], tensors: Sequence[Tensor]) -> None:
        self.run, self.tensors = run, tensors
        self.places = self._places()

    def is_current(self) -> bool:
        """Whether no tensor got other memory, as by `param.data = ...` or `vector_to_parameters`."""
        return self._places() == self.places

    def _places(self) -> list[int]:
        return list(map(Tensor.data_ptr, self.tensors))


class FlatFunction:
    """Calls `function` with the tensors of a batch; as a flat program once its calls have taken `after` seconds.

    - The function must depend on its arguments and on tensors that keep their memory, such as parameters; it may draw
      random numbers from PyTorch's default generator and from `generator`.
    - There is one program for each combination of the other arguments, names, shapes and layouts.
    - A program is used only if it repeats the result of the call after the one that it was traced from.
    """

    def __init__(
        self, function: Callable[..., Any], *, after: float = TRACE_AFTER, generator: torch.Generator | None = None
    ) -> None:
        self.function, self.after, self.generator = function, after, generator
        self.seconds: dict[Any, float] = {}
        self.candidates: dict[Any, Program | None] = {}  # traced, to be checked at the next call
        self.programs: dict[Any, Program | None] = {}  # None: cannot be traced

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "seconds": {}, "candidates": {}, "programs": {}}  # a copy has other tensors

    @property
    def generators(self) -> list[torch.Generator]:
        return [torch.default_generator, *([] if self.generator is None else [self.generator])]

    def __call__(self, batch: Batch, *others: Any) -> Any:
        key = (others, *((name, each.shape, each.stride(), each.dtype) for name, each in batch.items()))
        program = self.programs.get(key)
        if program is not None and program.is_current():
            with torch.no_grad():
                return program.run(*batch.values())
        if program is not None:
            del self.programs[key]
        is_due = key in self.candidates
        states = self._states() if is_due else []
        began = time.perf_counter()
        result = self.function(batch, *others)
        seconds = self.seconds[key] = self.seconds.get(key, 0.0) + time.perf_counter() - began
        if is_due:
            self.programs[key] = self._checked(self.candidates.pop(key), batch, states, result)
        elif seconds >= self.after and key not in self.programs:
            self.candidates[key] = self._program(batch, others)
        return result

    def traced(self, batch: Batch, *others: Any) -> Any:
        """Computes the same as `function`, in a form that can be traced."""
        return self.function(batch, *others)

    def repeats(self, result: Any, expected: Any) -> bool:
        pairs = zip(tree_leaves(result), tree_leaves(expected), strict=True)
        return all(mine is other or torch.equal(mine, other) for mine, other in pairs)

    def _program(self, batch: Batch, others: Any) -> Program | None:
        """Returns a program for batches like this one, or None if the function cannot be traced."""
        states = self._states()
        try:
            return flat_program(lambda *columns: self.traced(dict(zip(batch, columns, strict=True)), *others), batch)
        except Exception:  # a function that cannot be traced is called directly
            return None
        finally:
            self._restore(states)

    def _checked(self, program: Program | None, batch: Batch, states: list[Tensor], expected: Any) -> Program | None:
        """Returns the program if it repeats the expected result and draws the same random numbers."""
        after = self._states()
        self._restore(states)
        try:
            with torch.no_grad():
                result = None if program is None else program.run(*batch.values())
            drawn = zip(self._states(), after, strict=True)
            return program if all(a.equal(b) for a, b in drawn) and self.repeats(result, expected) else None
        except Exception:
            return None
        finally:
            self._restore(after)

    def _states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.generators]

    def _restore(self, states: list[Tensor]) -> None:
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)


class FlatLosses(FlatFunction):
    """Computes losses, and sets the gradients of `params`, which have none before.

    Without `metrics`, the loss holds only what the update itself needs, and programs compute nothing else.
    """

    def __init__(
        self, loss: Callable[[Batch, str], Loss], params: Sequence[Tensor], after: float = TRACE_AFTER
    ) -> None:
        super().__init__(self._by_backward, after=after)
        self.loss, self.params = loss, list(params)

    def __call__(self, batch: Batch, phase: str, metrics: bool = True) -> Loss:
        gradients, loss = super().__call__(batch, phase, metrics)
        for parameter, gradient in zip(self.params, gradients, strict=True):
            parameter.grad = gradient
        computed: Loss = loss
        return computed

    def traced(self, batch: Batch, phase: str, metrics: bool) -> tuple[Gradients, Loss]:
        loss = self.loss(batch, phase)
        gradients = torch.autograd.grad(loss.total, self.params, allow_unused=True)
        # Second derivatives can be transposed in memory, which `backward` undoes.
        contiguous: Gradients = [None if each is None else each.contiguous() for each in gradients]
        return contiguous, _detached(loss, batch, metrics)

    def repeats(self, result: Any, expected: Any) -> bool:
        """Gradients must also have their own memory in the layout of their parameters, as `backward` gives them."""
        pairs = [(each, param) for each, param in zip(result[0], self.params, strict=True) if each is not None]
        places = [each.untyped_storage().data_ptr() for each in tree_leaves(result) if each is not None]
        are_own = all(places.count(each.untyped_storage().data_ptr()) == 1 for each, _ in pairs)
        are_alike = all(each.stride() == param.stride() for each, param in pairs)
        return are_own and are_alike and super().repeats(result, expected)

    def _by_backward(self, batch: Batch, phase: str, metrics: bool) -> tuple[Gradients, Loss]:
        loss = self.loss(batch, phase)
        loss.total.backward()
        return [parameter.grad for parameter in self.params], _detached(loss, batch, metrics)


def _detached(loss: Loss, batch: Batch, metrics: bool) -> Loss:
    if not metrics:
        reads_rows = "slots" in batch or "rows" in batch
        loss = Loss({}, buffers=loss.buffers, rows=loss.rows if reads_rows else {})
    return Loss(*({name: each.detach() for name, each in part.items()} for part in loss))


def flat_program(function: Callable[..., Any], batch: Batch) -> Program:
    """Calls `function` of the columns of a batch, and returns the operations of this call as a flat program."""
    # Not by `make_fx`, which imports PyTorch's compilers.
    recorder = _Recorder(batch.values())
    with recorder:
        result = function(*batch.values())
    return recorder.program(result)


ALIASES = ("detach", "alias", "lift_fresh")  # the same tensor again, without gradients
NAMESPACES: tuple[Any, ...] = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase)


class _Recorder(TorchDispatchMode):
    """Records operations as a graph. Tensors that are neither inputs nor results, such as parameters, are constants."""

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        super().__init__()
        self.graph, self.constants = torch.fx.Graph(), dict[str, Any]()
        self.sources: list[Tensor] = []  # tensors that constants share their memory with
        self.nodes: dict[int, Any] = {}  # by the id of a tensor
        self.kept: list[Any] = []  # these tensors, so that no id is used twice
        self.tuples: dict[str, type] = {}  # named tuples that the program returns
        self.values: dict[Any, Tensor] = {}  # results by node
        self.views: dict[Any, Any] = {}  # nodes by memory, shape and layout
        self.places: set[int] = set()  # memory of inputs and results
        for index, column in enumerate(inputs):
            self._keep(column, self.graph.placeholder(f"column_{index}"), computed=True)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, for seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = schema_name(func)
        source = self._node(args[0]) if args and isinstance(args[0], Tensor) else None
        is_constant = source is not None and source.op == "get_attr"
        seen = self.views.get(_layout(result)) if func.is_view and isinstance(result, Tensor) else None
        if name in ALIASES:
            self._keep(result, source, computed=not is_constant)
        elif seen is not None:
            self._keep(result, seen, computed=not is_constant)
        elif func.is_view and is_constant and isinstance(result, Tensor):
            self._constant(result)  # made once, because it shares the memory of its parameter
        elif name == "_to_copy" and kwargs and kwargs.keys() == {"dtype"} and kwargs["dtype"] != args[0].dtype:
            self._record(torch.Tensor.to, (source, kwargs["dtype"]), {}, result)  # by a faster binding
        else:
            self._record(func, self._with_nodes(args), self._with_nodes(kwargs or {}), result)
        return result

    def program(self, result: Any) -> Program:
        self.graph.output(self._with_nodes(result))
        simplify(self.graph, self.values, self.constants)
        for node in self.graph.nodes:  # PyTorch's own bindings take half the time of an operator object
            if name := schema_name(node.target):
                node.args = positional_arguments(node)
                node.target = next((getattr(each, name) for each in NAMESPACES if hasattr(each, name)), node.target)
        written: Any = torch.fx.GraphModule(self.constants, self.graph)
        forward = type(written).forward
        forward.__globals__.update(self.tuples)  # PyTorch 2.11 writes their names without defining them
        # Attributes of a module are slow to read, so its code reads those of a plain object.
        return Program(partial(forward, SimpleNamespace(**self.constants)), self.sources)

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        node = self.graph.call_function(func, args, kwargs)
        if isinstance(result, Tensor):
            self._keep(result, node, computed=True)
            self.values[node] = result
        elif isinstance(result, list | tuple):
            for index, each in enumerate(result):
                self._keep(each, self.graph.call_function(operator.getitem, (node, index)), computed=True)
        else:
            raise ValueError(f"{func} reads values")

    def _with_nodes(self, value: Any) -> Any:
        """Returns the value with tensors and generators replaced by their nodes."""
        if isinstance(value, Tensor | torch.Generator):
            return self._node(value)
        if isinstance(value, dict):
            return {key: self._with_nodes(each) for key, each in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            self.tuples[type(value).__name__] = type(value)
            return type(value)(*map(self._with_nodes, value))
        return type(value)(map(self._with_nodes, value)) if isinstance(value, list | tuple) else value

    def _node(self, value: Any) -> Any:
        if id(value) in self.nodes:
            return self.nodes[id(value)]
        if isinstance(value, Tensor) and value.untyped_storage().data_ptr() in self.places:
            raise ValueError("a result has an unknown view")
        if isinstance(value, Tensor):
            self.sources.append(value)
        return self._constant(value)

    def _constant(self, value: Any) -> Any:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value.detach() if isinstance(value, Tensor) else value
        return self._keep(value, self.graph.create_node("get_attr", name), computed=False)

    def _keep(self, value: Any, node: Any, *, computed: bool) -> Any:
        self.nodes[id(value)] = node
        self.kept.append(value)
        if isinstance(value, Tensor) and value.numel():
            self.views[_layout(value)] = node
            if computed:
                self.places.add(value.untyped_storage().data_ptr())
        return node


def _layout(value: Tensor) -> Any:
    """Memory, shape and layout of a tensor; views that agree in them are the same."""
    return value.data_ptr(), value.shape, value.stride(), value.dtype
