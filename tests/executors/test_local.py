"""The local executor: GPUs, slots, cores and memory. Devices are simulated; processes are real."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_training.experiment.bench import cell as cell_module
from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.executors import capacity, devices
from rl_training.experiment.executors.base import Command, ExecutorOptions, Handle
from rl_training.experiment.executors.devices import VISIBLE, Device
from rl_training.experiment.executors.local import LocalExecutor
from rl_training.experiment.executors.opening import for_devices, open_executor
from rl_training.experiment.processes.runner import Job, run_jobs
from rl_training.processes import STARTER

pytestmark = pytest.mark.usefixtures("all_devices_visible")

GIB = 2**30
TWO_GPUS = [Device("0", 80 * GIB, ("GPU-aa11",)), Device("1", 40 * GIB, ("GPU-bb22",))]
SLEEP = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(0.3)")


@pytest.fixture
def two_gpus(monkeypatch) -> None:
    monkeypatch.setattr(devices, "list_devices", lambda: TWO_GPUS)


class TwoCommands(Job):
    """Two processes in turn, as the cell of a bench has them."""

    process: Handle | None = None

    def __init__(self, executor: LocalExecutor, folder: Path) -> None:
        self.executor, self.folder, self.left = executor, folder, 2

    @property
    def waiting(self) -> bool:
        return self.left == 2

    def start(self) -> None:
        self.left -= 1
        self.process = self.executor.submit(Command(self.folder.name, SLEEP, self.folder))

    def poll(self, *, stopping: bool) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            self.process = None
            if self.left:
                self.start()


def environments() -> list[dict[str, str]]:
    """The environments of the running processes that this process has started as commands, as the kernel has them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes().decode()
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended, or is another user's
            continue
        variables = dict(part.partition("=")[::2] for part in text.split("\0"))
        # A process that a command has forked shows the environment of the command until it starts its own program.
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
    jobs = [TwoCommands(executor, tmp_path / str(number)) for number in range(8)]
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
    first = executor.submit(Command("a", SLEEP, tmp_path / "a"))
    with pytest.raises(RuntimeError, match="more than 1 jobs at a time"):
        executor.submit(Command("b", SLEEP, tmp_path / "b"))
    first.kill()
    while first.poll() is None:
        pass
    second = executor.submit(Command("b", SLEEP, tmp_path / "b"))
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
        ({"devices": ("0", "2")}, "--devices: this machine has no GPU '2'; it has 0, 1"),
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
