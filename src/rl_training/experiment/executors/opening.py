"""Chooses an executor by name. Ray and submitit are imported only here."""

from collections.abc import Collection
from dataclasses import replace
from importlib.util import find_spec

from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors.base import Executor, ExecutorOptions
from rl_training.experiment.executors.capacity import jobs_at_a_time, slots_of_devices
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.messages import option_name

NAMES = ("local", "ray", "slurm")
# Options that only some executors have.
OF = {
    "devices": ("local",),
    "slots": ("local", "ray"),
    "gpu_memory": ("local",),
    "address": ("ray",),
    "slurm": ("slurm",),
    "gpus": ("ray", "slurm"),
}
PACKAGES = {"ray": "ray", "slurm": "submitit"}


def open_executor(options: ExecutorOptions) -> Executor:
    check_options(options)
    if options.name == "local":
        slots = slots_of_devices(options)
        return LocalExecutor(jobs_at_a_time(options, on_gpus=sum(slots.values())), slots)
    require_package(options.name)
    if options.name == "ray":
        from rl_training.experiment.executors.ray.executor import RayExecutor

        return RayExecutor(options)
    from rl_training.experiment.executors.slurm.executor import SlurmExecutor

    return SlurmExecutor(options)


def for_devices(options: ExecutorOptions, devices: Collection[str]) -> ExecutorOptions:
    """The options for jobs whose configs have these values of the key `device`."""
    own = sorted(device for device in devices if device not in ("auto", "cuda"))
    if not own:
        return options
    asked = [name for name in ("devices", "slots", "gpu_memory") if getattr(options, name)]
    if asked and options.name == "local":
        raise ConfigError(f"{option_name(asked[0])} needs device auto or cuda, and the config has device {own[0]}")
    return replace(options, placed=False)


def require_package(name: str) -> None:
    package = PACKAGES[name]
    if find_spec(package) is None:
        raise ImportError(f'--executor {name} needs {package}: pip install "rl-training[{name}]"')


def check_options(options: ExecutorOptions) -> None:
    if options.name not in NAMES:
        raise ConfigError(f"--executor must be local, ray or slurm, got {options.name!r}")
    for key, names in OF.items():
        if getattr(options, key) and options.name not in names:
            raise ConfigError(
                f"{option_name(key)} needs --executor {' or '.join(names)}, got --executor {options.name}"
            )
