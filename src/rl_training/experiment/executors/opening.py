"""Chooses an executor by name. Ray and submitit are imported only here."""

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


def open_executor(options: ExecutorOptions) -> Executor:
    check_options(options)
    return LocalExecutor(options.jobs)


def check_options(options: ExecutorOptions) -> None:
    if options.name not in NAMES:
        raise ConfigError(f"--executor must be local, ray or slurm, got {options.name!r}")
    for key, names in OF.items():
        if getattr(options, key) and options.name not in names:
            option = f"--{key.replace('_', '-')}"
            raise ConfigError(f"{option} needs --executor {' or '.join(names)}, got --executor {options.name}")
