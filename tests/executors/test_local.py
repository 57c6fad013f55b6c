"""The local executor: GPUs, slots, cores and memory. Devices are simulated; processes are real."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rl_training import control_groups
from rl_training.cli.executors import device_names
from rl_training.experiment.bench import cell as cell_module
from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors import capacity, devices
from rl_training.experiment.executors.base import ExecutorOptions, Handle, Work, last_error
from rl_training.experiment.executors.devices import VISIBLE, Device, list_devices
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.executors.opening import for_devices, open_executor
from rl_training.experiment.processes.runner import Job, run_jobs
from rl_training.processes import STARTER

GIB = 2**30
TWO_GPUS = [Device("0", 80 * GIB, ("GPU-aa11",)), Device("1", 40 * GIB, ("GPU-bb22",))]
SLEEP = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(0.3)")


@pytest.fixture(autouse=True)
def _no_setting_of_this_machine(monkeypatch):
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.fixture
def two_gpus(monkeypatch) -> None:
    monkeypatch.setattr(devices, "list_devices", lambda: TWO_GPUS)


class TwoWorks(Job):
    """Two processes in turn, as the cell of a bench has them."""

    process: Handle | None = None

    def __init__(self, executor: LocalExecutor, folder: Path) -> None:
        self.executor, self.folder, self.left = executor, folder, 2

    @property
    def waiting(self) -> bool:
        return self.left == 2

    def start(self) -> None:
        self.left -= 1
        self.process = self.executor.submit(Work(self.folder.name, SLEEP, self.folder))

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            self.process = None
            if self.left:
                self.start()


def environments() -> list[dict[str, str]]:
    """The environments of the running processes that this process has started as works, as the kernel has them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes().decode()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended, or is another user's
            continue
        variables = dict(part.partition("=")[::2] for part in text.split("\0"))
        # A process that a work has forked shows the environment of the work until it starts its own program.
        if state != "Z" and parent == variables.get(STARTER) == str(os.getpid()):
            found.append(variables)
    return found


class Census:
    """Counts the processes on each device at every call."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.together = 0

    def __call__(self, *ignored: object) -> None:
        now = Counter(each[VISIBLE] for each in environments())  # a process without a device is an error here
        self.most |= now
        self.together = max(self.together, now.total())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"devices": ("0", "1"), "slots": 2}, {"0": 2, "1": 2}),
        ({"gpu_memory": 40 * GIB}, {"0": 2, "1": 1}),
        ({"jobs": 3}, {"0": 2, "1": 1}),
    ],
)
def test_no_device_ever_has_more_processes_than_slots(two_gpus, tmp_path, options, expected):
    executor = open_executor(ExecutorOptions(**options))
    assert isinstance(executor, LocalExecutor)
    jobs = [TwoWorks(executor, tmp_path / str(number)) for number in range(8)]
    census = Census()
    run_jobs(jobs, limit=executor.limit, watch=census)
    assert [job.left for job in jobs] == [0] * 8
    assert (dict(census.most), census.together) == (expected, sum(expected.values()))


TINY = {"dataset": {"kind": "random", "rows": 200}, "hidden_sizes": [8], "batch_size": 8, "eval_interval": 0}


@pytest.mark.slow  # 16 processes that import torch
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_a_bench_of_eight_cells_keeps_to_the_slots_of_two_devices(two_gpus, tmp_path):
    eight = {"algos": ["bc", "iql", "td3_bc", "xql"], "envs": ["Pendulum-v1", "MountainCarContinuous-v0"]}
    plan = parse_plan({**eight, "seeds": [0], "steps": 20, "episodes": 1, "set": TINY})
    bench, census, states = Bench(plan, tmp_path), Census(), set[tuple[str, str]]()

    def watch(cells: Sequence[cell_module.CellRun]) -> None:
        census()
        states.update((cell.cell.name, cell.state) for cell in cells if cell.process is not None)

    bench.run(executor=open_executor(ExecutorOptions(devices=("0", "1"), slots=2)), watch=watch)
    assert (bench.status, [cell.error for cell in bench.cells]) == ("done", [None] * 8)
    assert dict(census.most) == {"0": 2, "1": 2}
    assert census.together <= 4
    assert {name for name, state in states if state == "evaluating"} == {cell.cell.name for cell in bench.cells}


def test_a_device_is_free_again_when_its_process_was_killed(tmp_path):
    executor = LocalExecutor(slots={"0": 1})
    first = executor.submit(Work("a", SLEEP, tmp_path / "a"))
    with pytest.raises(RuntimeError, match="more than 1 jobs at a time"):
        executor.submit(Work("b", SLEEP, tmp_path / "b"))
    first.kill()
    while first.poll() is None:
        pass
    second = executor.submit(Work("b", SLEEP, tmp_path / "b"))
    second.kill()
    while second.poll() is None:
        pass


def limit(**options: object) -> int:
    return open_executor(ExecutorOptions(**options)).limit  # type: ignore[arg-type]  # of the test's own making


def test_cores_memory_and_jobs_limit_together(monkeypatch):
    monkeypatch.setattr(devices, "list_devices", lambda: [])
    monkeypatch.setattr(capacity, "cores", lambda: 16)
    monkeypatch.setattr(capacity, "ram", lambda: 64 * GIB)
    assert limit() == 16
    assert limit(jobs=40) == 40  # more jobs than cores are the user's choice
    assert limit(cpus=4) == 4
    assert limit(memory=10 * GIB) == 6
    assert limit(cpus=4, memory=30 * GIB) == 2
    assert limit(cpus=2, memory=8 * GIB, jobs=5) == 5
    with pytest.raises(ConfigError, match="--cpus 17 is more than the cores of this machine, 16; give fewer"):
        limit(cpus=17)
    with pytest.raises(ConfigError, match="--memory 65 GiB is more than this machine has, 64 GiB; give less"):
        limit(memory=65 * GIB)


def test_gpus_limit_together_with_the_machine(two_gpus, monkeypatch):
    monkeypatch.setattr(capacity, "ram", lambda: 64 * GIB)
    assert limit() == 2  # one on each
    assert limit(slots=4) == 8
    assert limit(devices=("1",), slots=4) == 4
    assert limit(gpu_memory=20 * GIB) == 4 + 2
    assert limit(gpu_memory=20 * GIB, slots=3) == 3 + 2
    assert limit(gpu_memory=20 * GIB, memory=32 * GIB) == 2
    assert limit(jobs=7) == 7
    assert limit(gpu_memory=60 * GIB) == 1  # on the larger one
    assert limit(devices=("GPU-bb",)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": ("0", "2")}, "--devices: this machine has no GPU '2', but 0, 1"),
        ({"devices": ("0", "0")}, "--devices has GPU 0 twice; --slots 2 runs two jobs at a time on each GPU"),
        ({"gpu_memory": 81 * GIB}, "--gpu-memory 81 GiB is more than GPU 0 has, 80 GiB; give less"),
        (
            {"gpu_memory": 60 * GIB, "devices": ("0", "1")},
            "--gpu-memory 60 GiB is more than GPU 1 has, 40 GiB; give less",
        ),
    ],
)
def test_what_the_gpus_cannot_give_is_refused(two_gpus, options, message):
    with pytest.raises(ConfigError) as caught:
        open_executor(ExecutorOptions(**options))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": ("0", "1")}, "--devices 0,1: PyTorch finds no GPU on this machine; "
                                  "leave out --devices to run on the CPU"),
        ({"slots": 2}, "--slots needs a GPU, and PyTorch finds none on this machine; limit jobs with --jobs"),
        ({"gpu_memory": GIB}, "--gpu-memory needs a GPU, and PyTorch finds none on this machine; "
                              "limit jobs with --jobs"),
    ],
)  # fmt: skip
def test_options_of_gpus_need_one(monkeypatch, options, message):
    monkeypatch.setattr(devices, "list_devices", lambda: [])
    with pytest.raises(ConfigError) as caught:
        open_executor(ExecutorOptions(**options))
    assert str(caught.value) == message


def test_one_gpu_is_shared_as_before_unless_an_option_asks(monkeypatch):
    monkeypatch.setattr(devices, "list_devices", lambda: TWO_GPUS[:1])
    monkeypatch.setattr(capacity, "cores", lambda: 16)
    assert (limit(), limit(slots=2)) == (16, 2)


def test_a_config_that_names_its_device_is_not_placed(two_gpus, monkeypatch):
    monkeypatch.setattr(capacity, "cores", lambda: 16)
    assert open_executor(for_devices(ExecutorOptions(), {"auto", "cpu"})).limit == 16
    assert open_executor(for_devices(ExecutorOptions(), {"auto", "cuda"})).limit == 2
    with pytest.raises(ConfigError) as caught:
        for_devices(ExecutorOptions(devices=("0",)), {"cuda:1"})
    assert str(caught.value) == "--devices needs device auto or cuda, and the config has device cuda:1"


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
    with pytest.raises(ConfigError, match=f"--devices: {VISIBLE} has no GPU '0', but GPU-bb22"):
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


@pytest.mark.parametrize(
    ("log", "code", "message"),
    [
        ("a\nerror: no\n", 2, "no"),
        ("", 3, "ended with exit code 3"),
        ("warning\n", -9, "ended by SIGKILL; if memory ran out, run fewer jobs at a time: give --memory or --jobs"),
        ("error: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1,
         "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB; "
         "run fewer jobs at a time on a GPU: give --gpu-memory or --slots"),
    ],
)  # fmt: skip
def test_a_lack_of_memory_names_the_options(tmp_path, log, code, message):
    (tmp_path / "log.txt").write_text(log)
    assert last_error(tmp_path / "log.txt", code) == message


@pytest.mark.parametrize(
    ("log", "free", "message"),
    [
        ("", 0, "ended with exit code 1; no space is left in {}: free some, or give another --output"),
        ("", 1 << 30, "ended with exit code 1"),
        ("error: no\n", 0, "no"),
    ],
)
def test_an_empty_log_on_a_full_disk_is_explained(tmp_path, monkeypatch, log, free, message):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    (tmp_path / "log.txt").write_text(log)
    assert last_error(tmp_path / "log.txt", 1) == message.format(tmp_path)
