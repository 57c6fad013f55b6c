"""Lists the GPUs of this machine without initialising CUDA in this process."""

import os
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from rl_training.experiment.config.messages import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
QUERY_SECONDS = 20
PREFIXES = ("GPU-", "MIG-")  # of unique names, which may be shortened


class Device(NamedTuple):
    """A GPU, or a part of one (MIG). `name` is an entry of CUDA_VISIBLE_DEVICES; `names` are others that it has."""

    name: str
    memory: int | None = None  # in bytes, if known
    names: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        known = (self.name, *self.names)
        return name in known or (name.startswith(PREFIXES) and any(each.startswith(name) for each in known))


def choose_devices(wanted: Sequence[str]) -> list[Device]:
    """The GPUs that `--devices` names, or all."""
    found = list_devices()
    if not wanted:
        return found
    if not found:
        visible = os.environ.get(VISIBLE)
        reason = "" if visible is None else f" with {VISIBLE}={visible}"
        none = f"PyTorch finds no GPU on this machine{reason}"
        raise ConfigError(f"--devices {','.join(wanted)}: {none}; leave out --devices to run on the CPU")
    chosen: list[Device] = []
    for name in wanted:
        device = next((each for each in found if each.matches(name)), None)
        if device is None:
            source = VISIBLE if VISIBLE in os.environ else "this machine"
            raise ConfigError(
                f"--devices: {source} has no GPU {name!r}; it has {', '.join(each.name for each in found)}"
            )
        if device in chosen:
            raise ConfigError(f"--devices has GPU {name} twice; --slots 2 runs two jobs at a time on each GPU")
        chosen.append(device)
    return chosen


def list_devices() -> list[Device]:
    """The entries of CUDA_VISIBLE_DEVICES if it is set, otherwise all GPUs; none if PyTorch cannot use them."""
    import torch

    if not torch.backends.cuda.is_built():
        return []
    found = _all_devices()
    if VISIBLE not in os.environ:
        return [Device(str(number)) for number in range(torch.cuda.device_count())] if found is None else found
    entries: list[Device] = []
    for entry in (part.strip() for part in os.environ[VISIBLE].split(",")):
        known = next((each for each in found or () if each.matches(entry)), None)
        if not entry or entry == "-1" or (known is None and found == []):  # CUDA stops at the first that is invalid
            break
        entries.append(Device(entry) if known is None else Device(entry, known.memory, (known.name, *known.names)))
    return entries


def _all_devices() -> list[Device] | None:
    """The GPUs by their number, and parts of GPUs (MIG) by their name. None without nvidia-smi."""
    listed = _nvidia_smi("-L")
    totals = _nvidia_smi("--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
    if listed is None or totals is None:
        return None
    memory = dict(re.findall(r"^(\d+), *(\d+)$", totals, re.MULTILINE))
    devices: list[Device] = []
    for line in listed.splitlines():
        if whole := re.match(r"GPU (\d+): .*\(UUID: (\S+)\)", line):
            total = int(memory[whole[1]]) * 2**20 if whole[1] in memory else None
            devices.append(Device(whole[1], total, (whole[2],)))
        elif part := re.match(r"\s+MIG \S*?(\d+)gb.*\(UUID: (\S+)\)", line):
            if devices and not devices[-1].name.startswith("MIG-"):
                devices.pop()  # CUDA programs see its parts alone
            devices.append(Device(part[2], int(part[1]) * 2**30))
    return devices


def _nvidia_smi(*options: str) -> str | None:
    try:
        ended = subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=QUERY_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
