"""`algos`, `explain` and `doctor`: list algorithms and options, check the machine."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.cli.options import Json
from rl_training.cli.output import print_facts, print_json, print_table, print_wrapped
from rl_training.messages import command, did_you_mean
from rl_training.types import ACTION_SPACES

Row = tuple[str, ...]

EXTRAS = {  # optional dependencies, and the modules they install
    "data": ("h5py", "pyarrow"), "mujoco": ("mujoco", "imageio"), "atari": ("ale_py",), "box2d": ("Box2D",),
    "log": ("tensorboard",), "wandb": ("wandb",), "mlflow": ("mlflow",), "plot": ("matplotlib",),
    "tune": ("optuna",), "report": ("bokeh", "jinja2"), "video": ("imageio", "imageio_ffmpeg", "PIL", "pygame"),
    "ray": ("ray",), "export": ("onnx", "onnxscript", "onnxruntime"), "slurm": ("submitit",),
}  # fmt: skip


def algos(as_json: Json = False) -> None:
    """List the algorithms. Shows the lane, action spaces and pixel support of each."""
    from rl_training.experiment.config.registry import list_algorithm_specs

    specs = list_algorithm_specs()
    rows: list[dict[str, Any]] = [
        {"name": spec.name, "lane": spec.lane, "action_spaces": [ACTION_SPACES[kind] for kind in spec.action_kinds],
         "pixels": spec.takes_pixels, "summary": spec.summary}
        for spec in specs
    ]  # fmt: skip
    if as_json:
        print_json({"algorithms": rows})
        return
    print_table(
        ("name", "lane", "actions", "pixels", "description"),
        [(row["name"], row["lane"], ", ".join(row["action_spaces"]), _pixels(spec), _without_citation(spec.summary))
         for row, spec in zip(rows, specs, strict=True)],
    )  # fmt: skip
    typer.echo("rl-training explain ALGO lists the options and names the paper")


def _without_citation(summary: str) -> str:
    return re.sub(r" \([^()]*(et al\.|arXiv:)[^()]*\)", "", summary)


def _pixels(spec: Any) -> str:
    """Whether an algorithm takes images: yes, no, or partly, if only with some of its action spaces."""
    takes = [spec.learner.for_actions(kind).takes_pixels for kind in spec.action_kinds]
    return "yes" if all(takes) else "partly" if any(takes) else "no"


def explain(
    algo: Annotated[
        str, typer.Argument(metavar="ALGO", help="A name that `rl-training algos` lists, or module:Class of your own.")
    ],
    part: Annotated[
        str, typer.Argument(metavar="PART", help="Only options whose names contain PART, such as learning_rate.")
    ] = "",
) -> None:
    """List every option of an algorithm. Also lists its packaged configs and an example command."""
    from rl_training.experiment.config.packaged import load_config, packaged_configs
    from rl_training.experiment.config.registry import get_algorithm_spec
    from rl_training.modules import approve, module_in

    approve(filter(None, [module_in(algo)]))
    spec = get_algorithm_spec(algo)
    unused = {f"network.{key}" for key in spec.config_type.unused_network_keys()}
    rows = [(name, _value(option.get("default")), allowed(option), option.get("description", ""))
            for name, option in options_of(spec.config_type) if name not in unused]  # fmt: skip
    of_any_run = run_options()
    if part:
        print_options_with(part, algo, rows, of_any_run)
        return
    print_wrapped(f"{spec.name}: ", spec.summary)
    print_options(rows, of_any_run)
    configs = [name for name in packaged_configs() if name.startswith(f"{algo}/")]
    complete = [each for each in configs if not spec.needs_data or "dataset" in load_config(each)]
    small = [f"{algo}/{env}" for env in ("cartpole", "pendulum") if f"{algo}/{env}" in complete]  # needs no extra
    start = next(iter([*small, *complete]), f"{algo} ENV")  # a complete config runs without further options
    name, value, *_ = rows[0]
    print_facts({"configs": ", ".join(configs) or None, "example": f"rl-training train {start} --set {name}={value}"})


def print_options_with(part: str, algo: str, rows: Sequence[Row], of_any_run: Sequence[Row]) -> None:
    """Prints the options whose names contain `part`, written with `_` or `-`, in capitals or not."""
    wanted = part.lower().replace("-", "_")
    chosen = [[row for row in each if wanted in row[0].lower()] for each in (rows, of_any_run)]
    if not any(chosen):
        hint = did_you_mean(part, [name for name, *_ in [*rows, *of_any_run]])
        raise ValueError(f"no option of {algo} has {part!r} in its name{hint} ({command('explain', algo)} lists all)")
    print_options(*chosen)


def print_options(rows: Sequence[Row], of_any_run: Sequence[Row]) -> None:
    if rows:
        print_table(("option", "default", "allowed", "description"), rows)
    if rows and of_any_run:
        typer.echo()
    if of_any_run:
        print_table(("option of any run", "default", "description"), of_any_run)


def run_options() -> list[Row]:
    """Options of every run; keys of a section are written as paths."""
    from rl_training.experiment.config.train_config import TrainConfig

    rows = []
    for name, option in options_of(TrainConfig):
        default = option.get("default", "required")
        default = {} if isinstance(default, dict) else default  # its keys have their own rows
        rows.append((name, _value(default), option.get("description", "")))
    return [row for row in rows if row[0] not in ("algo", "algo_kwargs")]


def options_of(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The JSON schema of each option, followed by those of the keys of a section, whose names are paths."""
    schema = config.model_json_schema()
    for name, option in schema["properties"].items():
        yield name, option
        section = f"{name}.NAME" if "additionalProperties" in option else name
        sections = [schema["$defs"][kind].get("properties", {}) for kind in _kinds(option)]
        yield from {f"{section}.{key}": each for keys in sections for key, each in keys.items()}.items()


def _kinds(option: Any) -> Iterator[str]:
    """The definitions that a JSON schema refers to, at any depth."""
    if isinstance(option, Mapping):
        if "$ref" in option:
            yield option["$ref"].rpartition("/")[2]
        option = list(option.values())
    if isinstance(option, list):
        for part in option:
            yield from _kinds(part)


def _value(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return {None: "none", True: "true", False: "false"}[default]
    return f"[{', '.join(map(str, default))}]" if isinstance(default, list | tuple) else str(default)


def allowed(option: Mapping[str, Any]) -> str:
    """Describes the values that a JSON schema allows."""
    if "anyOf" in option:
        return " or ".join(allowed(choice) for choice in option["anyOf"])
    if "enum" in option:
        return ", ".join(map(str, option["enum"]))
    if "const" in option:
        return str(option["const"])
    if "$ref" in option:
        return "mapping"
    if "prefixItems" in option:
        return f"list of {len(option['prefixItems'])}"
    if option.get("type") == "array":
        return f"list, each {allowed(option['items'])}"
    kind = {"null": "none", "boolean": "true or false"}.get(option["type"], option["type"])
    if "minimum" in option and option["minimum"] == option.get("maximum"):
        return f"{option['minimum']:g}"
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    bounds = [f"{sign} {option[name]:g}" for name, sign in signs.items() if name in option]
    return " ".join([kind, " and ".join(bounds)]).strip()


def doctor() -> None:
    """Check this machine. Checks versions, CUDA, threads, an environment, the runs directory and extras."""
    checks: dict[str, Callable[[], str]] = {
        "versions": _versions, "cuda": _cuda,
        "threads": lambda: f"training uses 1 of {os.cpu_count()} cores, or more if timing shows a gain (see --threads)",
        "env": _environment, "runs": _runs,
    }  # fmt: skip
    failed = []
    for name, check in checks.items():
        try:
            print_facts({name: check()})
        except Exception as error:  # the other checks still run
            failed.append(name)
            print_facts({name: f"FAILED: {type(error).__name__}: {error}"})
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if find_spec(module) is None]
        fix = f'{", ".join(missing)} not installed; pip install "rl-training[{extra}]"'
        print_facts({f"[{extra}]": fix if missing else "installed"})
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)
    typer.echo("all checks passed; start with: rl-training train ppo/cartpole")


def _versions() -> str:
    import gymnasium  # noqa: F401  # checks that they can be imported
    import torch  # noqa: F401

    from rl_training.experiment.machine import versions

    return ", ".join(f"{name} {version}" for name, version in versions().items())


def _cuda() -> str:
    import torch

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return ", ".join(names) or "not available; training runs on the CPU"


def _environment() -> str:
    import numpy as np

    from rl_training.envs.pools.pool import EnvPool

    with EnvPool("CartPole-v1") as pool:
        pool.reset()
        steps, end = 0, time.monotonic() + 0.2
        while time.monotonic() < end:
            pool.step(np.zeros(1, np.int64))
            steps += 1
    return f"CartPole-v1: {steps * 5:,} steps per second"


def _runs() -> str:
    """Checks the parent directory if `runs` does not exist, since a run creates it."""
    import tempfile

    home = Path("runs") if Path("runs").exists() else Path()
    with tempfile.TemporaryFile(dir=home):
        return f"{Path('runs').resolve()} is writable"
