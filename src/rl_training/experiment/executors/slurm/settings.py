"""Reads `--slurm KEY=VALUE`, and the options of a job, as options of sbatch."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rl_training.experiment.config.messages import ConfigError, similar_key
from rl_training.experiment.executors.base import ExecutorOptions

SIGNAL_SECONDS = 90  # time to save before the time limit
SETUP, SIGNAL_DELAY = "setup", "signal-delay-s"  # keys that are no options of sbatch
KEYS = (
    "account", "begin", "comment", "constraint", "core-spec", "cpus-per-gpu", "cpus-per-task", "deadline", "dependency",
    "exclude", "exclusive", "export", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres", "gres-flags",
    "hint", "job-name", "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "nice", "nodelist",
    "oversubscribe", "partition", "prefer", "priority", "qos", "reservation", "time", "time-min", "tmp", "wckey",
    SETUP, SIGNAL_DELAY,
)  # fmt: skip
OURS = {
    "array": "--jobs N limits the jobs that run at a time",
    "chdir": "start the command in the folder you want",
    "error": "log.txt in the folder of the job has the messages",
    "nodes": "a job is one process on one node",
    "ntasks": "a job is one process on one node",
    "ntasks-per-node": "a job is one process on one node",
    "open-mode": "output is always appended",
    "output": "stdout.txt in the folder of the job has the output",
    "requeue": "jobs are always requeued",
    "signal": f"{SIGNAL_DELAY}=SECONDS sets the time to save before the time limit",
}
TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")


class SlurmSettings(NamedTuple):
    """`parameters` are those of submitit's `update_parameters`; `jobs` is the number of jobs at a time, if limited."""

    name: str
    jobs: int | None
    parameters: dict[str, Any]


def read_settings(options: ExecutorOptions) -> SlurmSettings:
    given = {key.replace("_", "-"): value for key, value in options.slurm.items()}
    for key in given:
        _check_key(key)
    sbatch: dict[str, Any] = {**_resources(options, given), "requeue": True, **given}
    if sbatch.get("exclusive") == "true":
        sbatch["exclusive"] = True
    setup, name = sbatch.pop(SETUP, None), sbatch.pop("job-name", "rl-training")
    if not re.fullmatch(r"[\w.-]+", name):
        raise ConfigError(f"--slurm job-name may have letters, digits, '.', '_' and '-', got {name!r}")
    sbatch["signal"] = f"B:USR2@{_signal_delay(sbatch.pop(SIGNAL_DELAY, None), sbatch.get('time'))}"
    parameters = {
        # Without srun the job is our process itself: signals reach it, and it has all cores of the job.
        "use_srun": False, "stderr_to_stdout": True, "time": None, "wckey": None,
        "setup": None if setup is None else [setup], "additional_parameters": sbatch,
    }  # fmt: skip
    return SlurmSettings(name, options.jobs, parameters)


def _check_key(key: str) -> None:
    if key in OURS:
        raise ConfigError(f"--slurm {key} is set by rl-training: {OURS[key]}")
    if key not in KEYS:
        hint = similar_key(key, {each.replace("-", "_"): each for each in KEYS})
        raise ConfigError(f"--slurm has no key {key!r}{hint or '; use a long option of sbatch, such as partition'}")


def _resources(options: ExecutorOptions, given: Mapping[str, str]) -> dict[str, Any]:
    """The options of sbatch for `--cpus`, `--gpus` and `--memory`."""
    if options.gpus is not None and options.gpus != int(options.gpus):
        raise ConfigError(
            f"--gpus must be a whole number with --executor slurm, got {options.gpus:g}; where the cluster shares "
            "GPUs, use --slurm gres=shard:1"
        )
    memory = None if options.memory is None else f"{-(-options.memory // 1024**2)}M"
    wanted = {
        "cpus-per-task": ("--cpus", options.cpus),
        "gpus-per-node": ("--gpus", int(options.gpus) if options.gpus else None),
        "mem": ("--memory", memory),
    }
    for key, (option, value) in wanted.items():
        if value is not None and key in given:
            raise ConfigError(f"{option} and --slurm {key} set the same thing; give one of them")
    return {key: value for key, (_, value) in wanted.items() if value is not None}


def _signal_delay(given: str | None, time_limit: str | None) -> int:
    """Seconds between Slurm's signal and the time limit: a sixth of a short limit."""
    minutes = None if time_limit is None else time_in_minutes(time_limit)
    if given is None:
        return SIGNAL_SECONDS if minutes is None else int(min(SIGNAL_SECONDS, minutes * 10))
    if not given.isdecimal() or not 1 <= int(given) <= 65535:
        raise ConfigError(f"--slurm {SIGNAL_DELAY} must be a number of seconds from 1 to 65535, got {given!r}")
    if minutes is not None and int(given) >= minutes * 60:
        raise ConfigError(f"--slurm {SIGNAL_DELAY}={given} must be shorter than --slurm time={time_limit}")
    return int(given)


def time_in_minutes(text: str) -> float:
    """Minutes of a time limit as sbatch reads it: 60, 90:00, 12:00:00, 2-00 or 2-12:00:00."""
    match = TIME.fullmatch(text)
    if match is None:
        raise ConfigError(f"--slurm time must be minutes (60), hours (12:00:00) or days-hours (2-00), got {text!r}")
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return (int(match["days"]) * 24 + hours) * 60 + minutes + seconds / 60
    hours, minutes, seconds = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    return hours * 60 + minutes + seconds / 60
