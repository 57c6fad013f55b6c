"""Chooses an executor by name. Ray and submitit are imported only here."""

from importlib import import_module
from importlib.util import find_spec
from typing import cast

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors.base import Executor, ExecutorOptions
from rl_training.experiment.executors.local import LocalExecutor

NAMES = ("local", "ray", "slurm")
# Options that only some executors have.
OF = {
    "devices": ("local",),
    "gpu_memory": ("local",),
    "address": ("ray",),
    "slurm": ("slurm",),
    "gpus": ("ray", "slurm"),
}
PACKAGES = {"ray": "ray", "slurm": "submitit"}


def open_executor(options: ExecutorOptions) -> Executor:
    check_options(options)
    if options.name == "local":
        return LocalExecutor(options.jobs)
    require_package(options.name)
    if options.name == "ray":
        made = import_module("rl_training.experiment.executors.ray_cluster").RayExecutor(options)
    else:
        made = import_module("rl_training.experiment.executors.slurm").SlurmExecutor(options)
    return cast(Executor, made)


def require_package(name: str) -> None:
    package = PACKAGES[name]
    if find_spec(package) is None:
        raise ImportError(f'--executor {name} needs {package}: pip install "rl-training[{name}]"')


def check_options(options: ExecutorOptions) -> None:
    if options.name not in NAMES:
        raise ConfigError(f"--executor must be local, ray or slurm, got {options.name!r}")
    for key, names in OF.items():
        if getattr(options, key) and options.name not in names:
            option = f"--{key.replace('_', '-')}"
            raise ConfigError(f"{option} needs --executor {' or '.join(names)}, got --executor {options.name}")
