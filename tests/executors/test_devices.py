"""The GPUs, cores and memory that a machine or a container has, and names of devices. `nvidia-smi` is simulated."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import torch

from rl_training import control_groups
from rl_training.cli.executors import device_names
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors import capacity
from rl_training.experiment.executors.base import ExecutorOptions
from rl_training.experiment.executors.devices import VISIBLE, list_devices
from rl_training.experiment.executors.opening import open_executor

pytestmark = pytest.mark.usefixtures("all_devices_visible")
GIB = 2**30
LISTED = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aa11)
  MIG 3g.40gb     Device  0: (UUID: MIG-m1)
  MIG 1g.10gb     Device  1: (UUID: MIG-m2)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bb22)
"""
TOTALS = "0, 81920\n1, 81920\n"


@pytest.fixture
def smi(monkeypatch) -> None:
    def run(command: list[str], **options: object) -> SimpleNamespace:
        assert command[0] == "nvidia-smi"
        return SimpleNamespace(returncode=0, stdout=LISTED if command[1] == "-L" else TOTALS)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [("MIG-m1", 40), ("MIG-m2", 10), ("1", 80)]),
        ("1", [("1", 80)]),
        ("MIG-m2,GPU-bb", [("MIG-m2", 10), ("GPU-bb", 80)]),
        ("1,-1,MIG-m1", [("1", 80)]),  # CUDA ignores what follows -1
        ("", []),
        ("MIG-GPU-aa11/1/0", [("MIG-GPU-aa11/1/0", None)]),  # the older form survives
    ],
)
def test_devices_are_the_entries_that_were_visible(smi, monkeypatch, visible, expected):
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
    assert [(each.name, each.memory and each.memory // GIB) for each in list_devices()] == expected


def test_a_gpu_outside_the_visible_ones_is_refused(smi, monkeypatch):
    monkeypatch.setenv(VISIBLE, "GPU-bb22")
    assert open_executor(ExecutorOptions(devices=("1",))).limit == 1  # as nvidia-smi numbers it
    with pytest.raises(ConfigError, match=f"--devices: {VISIBLE} has no GPU '0'; it has GPU-bb22"):
        open_executor(ExecutorOptions(devices=("0",)))


def test_without_nvidia_smi_pytorch_counts(monkeypatch):
    def missing(*arguments: object, **options: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [each.name for each in list_devices()] == ["0", "1"]
    with pytest.raises(ConfigError, match="--gpu-memory: the memory of GPU 0 is unknown; use --slots"):
        open_executor(ExecutorOptions(gpu_memory=GIB))


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/", {"memory.max": GIB, "cpu.max": "200000 100000"}),
        ("0::/job/step", {"memory.max": GIB, "cpu.max": "max 100000", "job/cpu.max": "250000 100000"}),
        (
            "5:cpu,cpuacct:/job\n3:memory:/job",
            {"memory/job/memory.limit_in_bytes": GIB, "cpu/job/cpu.cfs_quota_us": 200000,
             "cpu/job/cpu.cfs_period_us": 100000, "cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100000},
        ),
    ],
)  # fmt: skip
def test_the_memory_and_the_cores_of_a_container_count(tmp_path, monkeypatch, membership, files):
    for name, text in {"membership": membership, **{f"groups/{name}": text for name, text in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(control_groups, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(capacity, "usable_cores", lambda: 8)
    assert (capacity.ram(), capacity.cores()) == (GIB, 2)


@pytest.mark.parametrize(
    ("text", "names"), [("0,1, 2", ("0", "1", "2")), ("0-2,5", ("0", "1", "2", "5")), ("GPU-a1", ("GPU-a1",))]
)
def test_devices_are_numbers_ranges_and_names(text, names):
    assert device_names(text) == names


@pytest.mark.parametrize("text", ["", "0,", "0,3-1"])
def test_other_devices_are_refused(text):
    with pytest.raises(ValueError, match="--devices must be like 0,1,2 or 0-3, got"):
        device_names(text)
