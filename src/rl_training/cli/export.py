"""`export`: write a trained policy for use without this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.data import ActionRange, Allow, Columns, read_options
from rl_training.cli.options import DATA, Best, Json, Run, Trust, number
from rl_training.cli.output import print_facts, print_json, stdout_for_results
from rl_training.cli.tables import takes_table_options
from rl_training.messages import option_name

if TYPE_CHECKING:
    from rl_training.experiment.export.exporting import Exported

Out = Annotated[
    Path, typer.Option(metavar="FILE", help="A new file: .onnx, or .pt2 for torch.export. Its folder is created.")
]
Tolerance = Annotated[float, typer.Option(metavar="E", help="Largest relative error that is allowed.")]
Observations = Annotated[int, number("Observations to measure the error on.")]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DATASET", help="Take the observations from data, not from the environment."),
    DATA,
]


@takes_table_options
def export(
    run: Run, out: Out, best: Best = False, tolerance: Tolerance = 1e-5, observations: Observations = 4096,
    data: Data = None, columns: Columns = None, action_range: ActionRange = None, allow: Allow = None,
    trust: Trust = None, as_json: Json = False, *, table: dict[str, Any],
) -> None:  # fmt: skip
    """Export a trained policy as ONNX or torch.export. Observations and actions of the file are in the environment's
    units, and a JSON file beside it describes them. The file is compared with the agent on real observations; if it
    differs by more than the tolerance, no file is left and the exit code is 1. The data are read with the agent's own
    dataset options unless others are given."""
    reading = read_options(columns, action_range, allow) | table
    if data is None and (unused := [name for name, value in reading.items() if value]):
        raise ValueError(f"{option_name(unused[0].removeprefix('dataset_'))} needs --data DATASET")
    with stdout_for_results():
        from rl_training.experiment.agent import load_agent
        from rl_training.experiment.export.exporting import export_agent

        agent = load_agent(run, best=best, trust=trust or ())
        with new_folder(out):
            found = export_agent(agent, out, tolerance=tolerance, observations=observations, data=data, reading=reading)
    if as_json:
        print_json({"file": str(found.path), "description_file": str(found.description_path), **found.description})
        return
    print_facts(summary(found, str(agent.path)))


@contextmanager
def new_folder(path: Path) -> Iterator[None]:
    """Creates the folder of a file, and removes it again if the file is not written."""
    created = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in created:
            folder.rmdir()
        raise


def summary(found: Exported, checkpoint: str) -> dict[str, str | None]:
    parity, described = found.parity, found.description
    errors = ", ".join(f"{name} {error:.1e}" for name, error in parity.errors.items() if not name.startswith("next_"))
    state = [error for name, error in parity.errors.items() if name.startswith("next_")]
    ties = f", {parity.ties:,} ties" if parity.ties else ""
    actions = f"{parity.equal_actions:,} of {parity.observations:,}{ties}"
    return {
        "policy": f"{found.path} ({found.path.stat().st_size / 1e6:.2f} MB)",
        "description": str(found.description_path),
        "inputs": ", ".join(f"{each['name']} {shape(each)}" for each in described["inputs"]),
        "outputs": ", ".join(f"{each['name']} {shape(each)}" for each in described["outputs"]),
        "errors": f"{errors}{f', memory {max(state):.1e}' if state else ''} (relative; allowed {parity.tolerance:g})"
        if parity.errors
        else None,
        "actions": f"{actions} equal, on observations from {parity.source}",
        "checkpoint": checkpoint,
    }


def shape(tensor: dict[str, list[object]]) -> str:
    return f"{tensor['dtype']} [{', '.join(map(str, tensor['shape']))}]"
