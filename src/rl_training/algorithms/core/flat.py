"""Functions of tensors as flat programs.

For small networks on a CPU, modules and autograd take longer than the arithmetic. A function that is called again and
again is therefore traced once, backward passes included, and written as Python code that calls the same operations in
the same order: the results are equal bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rl_training.types import Batch, Loss

TRACE_AFTER = 3.0  # seconds in a function; the first trace takes about as long, because it imports the compiler
Program: TypeAlias = "Callable[..., Any]"
Gradients: TypeAlias = "list[Tensor | None]"


class FlatFunction:
    """Calls `function` with the tensors of a batch; as a flat program once its calls have taken `after` seconds.

    - The function must depend on its arguments and on tensors that keep their memory, such as parameters; it may draw
      random numbers from PyTorch's default generator and from `generator`.
    - There is one program for each combination of the other arguments, names, shapes and layouts.
    - A program is used only if it repeats the result of the call that it was traced from.
    """

    def __init__(
        self, function: Callable[..., Any], *, after: float = TRACE_AFTER, generator: torch.Generator | None = None
    ) -> None:
        self.function, self.after = function, after
        self.generators = [torch.default_generator, *([] if generator is None else [generator])]
        self.seconds: dict[Any, float] = {}
        self.programs: dict[Any, Program | None] = {}  # None: cannot be traced

    def __call__(self, batch: Batch, *others: Any) -> Any:
        key = (others, *((name, each.shape, each.stride(), each.dtype) for name, each in batch.items()))
        program = self.programs.get(key)
        if program is not None:
            with torch.no_grad():
                return program(*batch.values())
        seconds = self.seconds.get(key, 0.0)
        is_due = seconds >= self.after and key not in self.programs
        states, began = self._states() if is_due else [], time.perf_counter()
        result = self.function(batch, *others)
        self.seconds[key] = seconds + time.perf_counter() - began
        if is_due:
            self.programs[key] = self._program(batch, others, states, result)
        return result

    def traced(self, batch: Batch, *others: Any) -> Any:
        """Computes the same as `function`, in a form that can be traced."""
        return self.function(batch, *others)

    def repeats(self, result: Any, expected: Any) -> bool:
        pairs = zip(tree_leaves(result), tree_leaves(expected), strict=True)
        return all(mine is other or torch.equal(mine, other) for mine, other in pairs)

    def _program(self, batch: Batch, others: Any, states: list[Tensor], expected: Any) -> Program | None:
        """Returns a program for batches like this one, or None if it does not repeat the expected result."""
        after = self._states()
        self._restore(states)
        try:
            program = flat_program(lambda *columns: self.traced(dict(zip(batch, columns, strict=True)), *others), batch)
            self._restore(states)
            with torch.no_grad():
                result = program(*batch.values())
            drawn = zip(self._states(), after, strict=True)
            repeats = self.repeats(result, expected) and all(mine.equal(other) for mine, other in drawn)
        except Exception:  # whatever cannot be traced is called as it is
            return None
        finally:
            self._restore(after)
        return program if repeats else None

    def _states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.generators]

    def _restore(self, states: list[Tensor]) -> None:
        for generator, state in zip(self.generators, states, strict=True):
            generator.set_state(state)


class FlatLosses(FlatFunction):
    """Computes losses, and sets the gradients of `params`, which have none before."""

    def __init__(
        self, loss: Callable[[Batch, str], Loss], params: Sequence[Tensor], after: float = TRACE_AFTER
    ) -> None:
        super().__init__(self._by_backward, after=after)
        self.loss, self.params = loss, list(params)

    def __call__(self, batch: Batch, *others: Any) -> Loss:
        gradients, loss = super().__call__(batch, *others)
        for parameter, gradient in zip(self.params, gradients, strict=True):
            parameter.grad = gradient
        computed: Loss = loss
        return computed

    def traced(self, batch: Batch, *others: Any) -> tuple[Gradients, Loss]:
        loss = self.loss(batch, *others)
        return list(torch.autograd.grad(loss.total, self.params, allow_unused=True)), _detached(loss)

    def repeats(self, result: Any, expected: Any) -> bool:
        """Gradients must also have memory of their own, laid out as their parameters, as `backward` gives them."""
        pairs = [(each, param) for each, param in zip(result[0], self.params, strict=True) if each is not None]
        places = [each.untyped_storage().data_ptr() for each in tree_leaves(result) if each is not None]
        are_own = all(places.count(each.untyped_storage().data_ptr()) == 1 for each, _ in pairs)
        are_alike = all(each.stride() == param.stride() for each, param in pairs)
        return are_own and are_alike and super().repeats(result, expected)

    def _by_backward(self, batch: Batch, *others: Any) -> tuple[Gradients, Loss]:
        loss = self.loss(batch, *others)
        loss.total.backward()
        return [parameter.grad for parameter in self.params], _detached(loss)


def _detached(loss: Loss) -> Loss:
    return Loss(*({name: each.detach() for name, each in part.items()} for part in loss))


def flat_program(function: Callable[..., Any], batch: Batch) -> Program:
    """Traces `function` of the columns of a batch, and returns it as a flat program."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second

    traced: Any = make_fx(function)(*batch.values())
    constants = _simplified(traced)
    written = torch.fx.GraphModule(constants, traced.graph)
    # Attributes of a module are slow to read, so the code of the module reads those of a plain object.
    return partial(type(written).forward, SimpleNamespace(**constants))


ALIASES = ("detach", "alias", "lift_fresh")  # the same tensor again, without gradients
VIEWS = ("t", "transpose", "view", "expand", "unsqueeze", "squeeze")
NAMESPACES: tuple[Any, ...] = (torch._C._VariableFunctions, torch._C._nn, torch.Tensor)


def _simplified(module: Any) -> dict[str, Any]:
    """Simplifies a traced graph in place; returns its constants: parameters, buffers, their views, and generators.

    Views of parameters are made once, because they share their memory.
    """
    graph, constants, values = module.graph, dict[Any, Any](), dict[str, Any]()
    for node in list(graph.nodes):
        name, source = _name(node), next(iter(node.all_input_nodes), node)
        if node.op == "get_attr":
            value = getattr(module, node.target)
            constants[node] = value.detach() if isinstance(value, Tensor) else value
        elif name in ALIASES:
            node.replace_all_uses_with(source)
        elif name == "t" and _name(source) == "t":
            node.replace_all_uses_with(source.all_input_nodes[0])
        elif name in VIEWS and source in constants:
            constants[node] = node.target(constants[source], *node.args[1:], **node.kwargs)
    for index, (node, value) in enumerate(constants.items()):
        name = f"constant_{index}"
        values[name] = value
        setattr(module, name, value)
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.create_node("get_attr", name))
    graph.eliminate_dead_code()
    for node in graph.nodes:  # PyTorch's own bindings take half the time of an operator object
        if name := _name(node):
            node.target = next((getattr(each, name) for each in NAMESPACES if hasattr(each, name)), node.target)
    return values


def _name(node: Any) -> str:
    """Name of a node's operator without namespace and overload, or "" for other nodes."""
    schema = getattr(getattr(node, "target", None), "_schema", None)
    return "" if schema is None else str(schema.name.partition("::")[2])
