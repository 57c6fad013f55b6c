"""Writes a policy as an ONNX or torch.export file, and opens such a file to run it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from rl_training.envs.checks.user_code import place_of_error
from rl_training.experiment.export.policy import ExportedPolicy
from rl_training.messages import describe_error, quiet_logger
from rl_training.types import Arrays

Runnable: TypeAlias = Callable[[Arrays], Arrays]  # named inputs to named outputs, all with a leading batch axis


def format_of(path: Path) -> str:
    """Returns the format by the file's ending; raises ValueError for others and ImportError without its packages."""
    if path.suffix not in WRITERS:
        raise ValueError(f"the file of a policy must end in {' or '.join(WRITERS)}, got {path}")
    for package in ("onnx", "onnxscript", "onnxruntime") if path.suffix == ".onnx" else ():
        if find_spec(package) is None:
            raise ImportError(f'ONNX files need {package}: pip install "rl-training[export]"')
    return path.suffix[1:]


def write_policy(policy: ExportedPolicy, path: Path) -> dict[str, Any]:
    """Writes the file and returns what its format adds to the description."""
    with quiet_logger("torch.onnx"):
        return WRITERS[path.suffix](policy, path)


# ONNX Runtime and PyTorch refuse paths that the locale cannot encode, so the openers read the files themselves.
def open_policy(path: Path) -> Runnable:
    return OPENERS[path.suffix](path)


def _traced(policy: ExportedPolicy) -> torch.export.ExportedProgram:
    inputs, batch = policy.example(), torch.export.Dim("batch", min=1)
    shapes = ({name: {0: batch} for name in inputs},)
    try:
        with torch.no_grad(), redirect_stderr(StringIO()):  # PyTorch prints the graph before it raises an error
            program = torch.export.export(policy, (inputs,), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        place = place_of_error(error, installed=False)
        reason = describe_error(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"PyTorch cannot trace this policy for any number of rows and any values: {reason}"
            f"{'' if place is None else f' in {place}'}. In networks and algorithms of your own, write x.shape[0] in "
            "place of len(x), and avoid loops over rows, .item() and branches on values"
        ) from error
    program.graph.eliminate_dead_code()  # such as the prior of a world model
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _trim(program: torch.export.ExportedProgram) -> None:
    """Empties the weights that the actions do not depend on, such as critics."""
    signature = program.graph_signature
    tensors = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in tensors and not node.users:
            name = tensors[node.name]
            empty = program.state_dict[name].new_zeros(0)
            is_parameter = isinstance(program.state_dict[name], nn.Parameter)
            program.state_dict[name] = nn.Parameter(empty, requires_grad=False) if is_parameter else empty


def _log1p(x: Tensor) -> Tensor:
    """log(1 + x) exact to rounding, also near 0; the operator of ONNX is log."""
    shifted = 1 + x
    moved = shifted - 1
    return torch.where(moved == 0, x, shifted.log() * (x / moved))


def _write_onnx(policy: ExportedPolicy, path: Path) -> dict[str, Any]:
    program = _traced(policy).run_decompositions({torch.ops.aten.log1p.default: _log1p})
    inputs = policy.example()
    written: Any = torch.onnx.export(
        program, dynamo=True, verbose=False, external_data=False, input_names=[*inputs], output_names=[*policy(inputs)]
    )
    graph = written.model.graph
    for value in (*graph.inputs, *graph.outputs):  # the tracer numbers the batch axis
        value.shape = type(value.shape)(["batch", *list(value.shape)[1:]])
    ends = {id(output) for output in graph.outputs}
    for node in graph.all_nodes():
        node.metadata_props.clear()  # source lines and paths of this machine
        for value in (output for output in node.outputs if id(output) not in ends):
            value.name = f"_{value.name}"  # the tracer's names may be those of outputs, such as mean
    written.save(str(path), external_data=False)
    return {"opset": written.model.opset_imports[""]}


def _write_pt2(policy: ExportedPolicy, path: Path) -> dict[str, Any]:
    program = _traced(policy)
    _trim(program)
    with path.open("wb") as file:
        torch.export.save(program, file)
    return {"torch": torch.__version__}


def _open_onnx(path: Path) -> Runnable:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def _open_pt2(path: Path) -> Runnable:
    with path.open("rb") as file:
        module = torch.export.load(file).module()

    @torch.no_grad()
    def run(inputs: Arrays) -> Arrays:
        outputs = module({name: torch.as_tensor(each) for name, each in inputs.items()})
        return {name: each.numpy() for name, each in outputs.items()}

    return run


WRITERS = {".onnx": _write_onnx, ".pt2": _write_pt2}
OPENERS = {".onnx": _open_onnx, ".pt2": _open_pt2}
