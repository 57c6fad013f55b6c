"""The options of executors, which several commands share."""

import re
from dataclasses import fields
from typing import Annotated

import typer

from rl_training.cli.options import LIST, adds_options
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.messages import option_name


def _choices(
    executor: Annotated[
        str, typer.Option(help="Where to run: on this machine, on Ray or on Slurm.", metavar="local|ray|slurm")
    ] = "local",
    devices: Annotated[str | None, typer.Option(help="GPUs of this machine to use.", metavar="0,1,2"), LIST] = None,
    slots: Annotated[int | None, typer.Option(help="Jobs at a time on each GPU.", metavar="N", min=1)] = None,
    cpus: Annotated[int | None, typer.Option(help="CPU cores per job.", metavar="N", min=1)] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs per job (a fraction with Ray).", metavar="N", min=0)] = None,
    memory: Annotated[str | None, typer.Option(help="RAM per job.", metavar="8G")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="GPU memory per job.", metavar="10G")] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address of a running Ray cluster.", metavar="HOST:PORT|auto", show_default="a local one"),
    ] = None,
    slurm: Annotated[
        list[str] | None, typer.Option(help="A Slurm setting, such as partition=long; repeatable.", metavar="KEY=VALUE")
    ] = None,
) -> ExecutorOptions:
    from rl_training.experiment.config.messages import key_and_value

    return ExecutorOptions(
        name=executor, devices=device_names(devices), slots=slots,
        cpus=cpus, gpus=gpus, memory=size("--memory", memory), gpu_memory=size("--gpu-memory", gpu_memory),
        address=address, slurm=dict(key_and_value(text, what="--slurm") for text in slurm or []),
    )  # fmt: skip


def given_options(options: ExecutorOptions) -> list[str]:
    """The options with another value than their default, as they are typed."""
    defaults = ExecutorOptions()
    changed = [each.name for each in fields(options) if getattr(options, each.name) != getattr(defaults, each.name)]
    return [option_name("executor" if name == "name" else name) for name in changed]


def device_names(text: str | None) -> tuple[str, ...]:
    """Parses 0,1,2 or 0-3, and names such as GPU-1a2b."""
    if text is None:
        return ()
    names: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        ends = re.fullmatch(r"(\d{1,3})-(\d{1,3})", part)
        added = [part] if ends is None else [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]
        names += added
        if not part or not added:
            raise ValueError(f"--devices must be like 0,1,2 or 0-3, got {text!r}")
    return tuple(names)


def size(option: str, text: str | None) -> int | None:
    """Parses 8G, 500M or a number of bytes."""
    if text is None:
        return None
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if parts is None or float(parts[1]) == 0:
        raise ValueError(f"{option} must be a size such as 8G or 500M, got {text!r}")
    return int(float(parts[1]) * 1024 ** " kmgt".index(parts[2].lower() or " "))


takes_executor = adds_options(_choices, "executor")  # the command receives them as `executor`, an ExecutorOptions
