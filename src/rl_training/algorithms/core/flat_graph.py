"""Simplifies the graphs of flat programs; results stay equal bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

Graph: TypeAlias = "torch.fx.Graph"
Node: TypeAlias = "torch.fx.Node"

FILLED = ("ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full", "zeros", "ones", "full",
          "scalar_tensor")  # fmt: skip
IN_PLACE = ("relu", "tanh", "exp", "log", "neg", "abs", "clamp_min", "add", "sub", "mul", "div")


def simplify(graph: Graph, values: Mapping[Node, Tensor], constants: dict[str, Any]) -> None:
    """Removes operations whose results no output needs or that are the same at every call, and reuses memory.

    `values` are the results of the recorded call; `constants` takes those that are the same at every call.
    """
    _remove_unused(graph)
    _fold_constants(graph, values, constants)
    _join_sums_with_views(graph, values)
    _remove_unused(graph)
    _reuse_memory(graph, values)


def schema_name(target: Any) -> str:
    """Name of an operator without namespace and overload, or "" for other functions."""
    schema = getattr(target, "_schema", None)
    return "" if schema is None else str(schema.name.partition("::")[2])


def positional_arguments(node: Node) -> tuple[Any, ...]:
    """Arguments of an operator up to `reduction`, whose default differs in PyTorch's own bindings."""
    target: Any = node.target
    schema = target._schema
    names = [each.name for each in schema.arguments]
    wanted = names.index("reduction") + 1 if "reduction" in names and "reduction" not in node.kwargs else 0
    return (*node.args, *(each.default_value for each in schema.arguments[len(node.args) : wanted]))


def is_fresh(target: Any) -> bool:
    """Whether the results of an operator have memory of their own."""
    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable or schema_name(target) == "_unsafe_view":  # it shares memory undeclared
        return False
    return all(each.alias_info is None for each in schema.returns)


def _remove_unused(graph: Graph) -> None:
    # Not by `eliminate_dead_code`, which imports PyTorch's compilers in some versions.
    for node in reversed(graph.nodes):
        is_pure = not _is_mutable(node.target) and not _is_random(node.target)
        if node.op in ("call_function", "get_attr") and not node.users and is_pure:
            graph.erase_node(node)


def _fold_constants(graph: Graph, values: Mapping[Node, Tensor], constants: dict[str, Any]) -> None:
    written = _written_memory(graph, values)
    folded: set[Node] = set()
    for node in list(graph.nodes):
        target: Any = node.target
        if node.op != "call_function" or node not in values or _memory(values[node]) in written:
            continue
        is_filled = schema_name(target) in FILLED
        repeats = hasattr(target, "_schema") and not _is_random(target)
        inputs = node.all_input_nodes
        if is_filled or (repeats and inputs and all(each in folded for each in inputs)):
            folded.add(node)
    for node in folded:
        if any(user not in folded for user in node.users):
            name = f"folded_{len(constants)}"
            constants[name] = values[node]
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.create_node("get_attr", name))


def _written_memory(graph: Graph, values: Mapping[Node, Tensor]) -> set[int]:
    """Memory of outputs, which the caller may write to, and of tensors that operations write to."""
    writers = [node for node in graph.nodes if node.op == "output" or _is_mutable(node.target)]
    return {_memory(values[each]) for node in writers for each in node.all_input_nodes if each in values}


def _is_mutable(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _join_sums_with_views(graph: Graph, values: Mapping[Node, Tensor]) -> None:
    """Replaces a sum with keepdim, followed by a view that drops the dimensions, by a sum without keepdim."""
    for node in graph.nodes:
        source: Any = node.args[0] if node.args else None
        if schema_name(node.target) != "view" or schema_name(getattr(source, "target", None)) != "sum":
            continue
        if len(source.args) == 3 and len(source.users) == 1 and not source.kwargs:
            x, dims, keeps = source.args
            dropped = values[source].squeeze(dims) if keeps else values[source]
            if dropped.shape == values[node].shape:
                node.target, node.args = source.target, (x, dims)


def _reuse_memory(graph: Graph, values: Mapping[Node, Tensor]) -> None:
    """Lets elementwise operations write to their first input if nothing else reads it."""
    for node in graph.nodes:
        source: Any = node.args[0] if node.args else None
        if schema_name(node.target) not in IN_PLACE or node not in values or source not in values:
            continue
        mine, other = values[node], values[source]
        is_alike = (mine.shape, mine.stride(), mine.dtype) == (other.shape, other.stride(), other.dtype)
        is_last = len(source.users) == 1 and source not in node.args[1:] and is_fresh(source.target)
        if is_alike and is_last and source.op == "call_function":
            node.target = getattr(torch.Tensor, f"{schema_name(node.target)}_")
