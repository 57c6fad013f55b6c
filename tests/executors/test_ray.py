"""Works on a real Ray cluster of two nodes on this machine: where they run, how they stop, how they continue.

They wait more than they compute, so they are in `make learn`. In `make test`, test_ray_bench.py trains on a local Ray.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_training.experiment.executors.base import Command, ExecutorOptions, Handle
from rl_training.experiment.executors.opening import open_executor
from rl_training.experiment.executors.ray.resources import Resources
from rl_training.experiment.executors.ray.worker import TOKEN

sys.path.insert(0, str(Path(__file__).parent))
from process_tree import below, is_alive, worker_of  # type: ignore[import-not-found]

sys.path.pop(0)

Submit = Callable[..., Handle]


@pytest.fixture(scope="module")
def submit(ray_nodes) -> Iterator[Submit]:
    """Submits a command that saves a checkpoint every 0.2 s; with two CPUs it runs where no folder is shared."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_nodes.variables.items():
            patch.setenv(name, value)
        executor = open_executor(ExecutorOptions("ray", address=ray_nodes.address))
        wait_until(lambda: ray_nodes.reason or Resources(4).fit_somewhere())

        def submit(
            output: Path, steps: int, *more: str, cpus: int = 1, gpus: float = 0.0, pause: float = 0.2
        ) -> Handle:
            if cpus + gpus > 1 and ray_nodes.reason:
                pytest.skip(ray_nodes.reason)
            executor._resources = Resources(cpus, gpus)  # type: ignore[attr-defined]
            output.mkdir(exist_ok=True)
            words = ("tiny_work", "--output", str(output), "--steps", str(steps), "--pause", str(pause), *more)
            return executor.submit(Command("cell", words, output / "cell" / ".work"))

        yield submit
        executor.close()


def ended(handle: Handle, seconds: float = 60.0) -> int | None:
    wait_until(lambda: handle.poll() is not None, seconds)
    return handle.poll()


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def facts(output: Path) -> dict[str, str]:
    return json.loads((output / "cell" / ".work" / "stdout.txt").read_text())


def starts(output: Path) -> list[int]:
    return [int(line) for line in (output / "cell" / "starts.txt").read_text().split()]


def steps(output: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in output.glob("cell/run/checkpoints/step_*"))


@pytest.mark.slow
def test_a_work_runs_as_it_would_here(submit, tmp_path):
    handle = submit(tmp_path, 2, pause=0.0)
    assert ended(handle) == 0
    expected = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "directory": os.getcwd(), "input": ""}
    assert facts(tmp_path).items() >= expected.items()
    assert (tmp_path / "cell" / ".work" / "log.txt").read_text() == "started\n"
    assert (steps(tmp_path), starts(tmp_path)) == ([1, 2], [0])


@pytest.mark.slow
def test_each_work_sees_the_gpu_that_ray_reserves_for_it(submit, ray_nodes):
    outputs = [ray_nodes.hidden / f"gpu{number}" for number in range(3)]
    handles = [submit(output, 1000, gpus=gpus) for output, gpus in zip(outputs, [1.0, 0.5, 0.5], strict=True)]
    wait_until(lambda: all(steps(output) for output in outputs))
    for handle in handles:
        handle.terminate()
    assert [ended(handle) for handle in handles] == [143] * 3
    whole, half, other = (facts(output)["CUDA_VISIBLE_DEVICES"] for output in outputs)
    assert {whole, half} == {"0", "1"}
    assert half == other


@pytest.mark.slow
def test_a_work_waits_until_a_node_has_its_cpus(submit, tmp_path):
    first = submit(tmp_path / "a", 1000, cpus=4)
    wait_until(lambda: steps(tmp_path / "a"))
    second = submit(tmp_path / "b", 1, cpus=4)
    time.sleep(0.5)
    assert (first.started, second.started) == (True, False)
    second.terminate()
    assert ended(second) == -signal.SIGTERM
    first.terminate()
    assert ended(first) == 143


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_reaches_the_process(submit, tmp_path, number):
    handle = submit(tmp_path, 1000)
    wait_until(lambda: steps(tmp_path))
    handle.stop(number)
    assert ended(handle) == 128 + number


@pytest.mark.slow
def test_a_second_request_ends_it_at_once(submit, tmp_path):
    handle = submit(tmp_path, 2, pause=1000)
    wait_until(lambda: steps(tmp_path))
    handle.stop(signal.SIGTERM)
    time.sleep(1.5)
    assert handle.poll() is None
    handle.stop(signal.SIGTERM)
    assert ended(handle) == 3


@pytest.mark.slow
def test_a_killed_work_ends(submit, tmp_path):
    handle = submit(tmp_path, 1000)
    wait_until(lambda: steps(tmp_path))
    handle.kill()
    assert ended(handle) == -signal.SIGKILL
    wait_until(lambda: not is_alive(int(facts(tmp_path)["process"])))


@pytest.mark.slow
def test_a_dead_workers_work_continues_from_its_checkpoint(submit, tmp_path, capfd):
    handle = submit(tmp_path, 8)
    wait_until(lambda: len(steps(tmp_path)) == 2)
    os.kill(worker_of(int(facts(tmp_path)["process"])), signal.SIGKILL)
    assert ended(handle) == 0
    first, again = starts(tmp_path)
    assert (first, again >= 2) == (0, True)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "cell: its worker on " in captured.err
    assert captured.err.endswith("died; it continues from its last checkpoint on another worker\n")


@pytest.mark.slow
def test_files_of_a_node_that_shares_no_folder_are_copied_back(submit, ray_nodes):
    output = ray_nodes.hidden / "copied"
    config = ray_nodes.hidden / "base.yaml"
    config.write_text("algo: dqn")
    handle = submit(output, 4, "--config", str(config), cpus=2)
    assert ended(handle) == 0
    assert facts(output)["config"] == "algo: dqn"
    assert (steps(output), starts(output)) == ([3, 4], [0])
    assert (output / "cell/run/checkpoints/step_000000004/state.json").read_text() == "4" * 1000
    assert json.loads((output / "cell/result.json").read_text()) == {"steps": 4}
    assert (output / "cell" / ".work" / "log.txt").read_text() == "started\n"
    assert sorted(path.name for path in output.iterdir()) == [TOKEN, "cell"]
    assert sorted(path.name for path in (output / "cell").glob(".*")) == [".work"]
    assert list(Path(tempfile.gettempdir()).glob("rl-training-work-*")) == []


@pytest.mark.slow
def test_a_copied_work_continues_from_the_last_checkpoint_that_came_back(submit, ray_nodes):
    output = ray_nodes.hidden / "continued"
    handle = submit(output, 8, cpus=2, pause=0.4)
    wait_until(lambda: steps(output)[-1:] >= [3])
    os.kill(worker_of(int(facts(output)["process"])), signal.SIGKILL)
    assert ended(handle) == 0
    first, again = starts(output)
    assert (first, again >= 3, steps(output)) == (0, True, [7, 8])


@pytest.mark.slow
def test_a_stopped_work_is_copied_back_and_continues_elsewhere(submit, ray_nodes):
    output = ray_nodes.hidden / "stopped"
    handle = submit(output, 1000, cpus=2)
    wait_until(lambda: steps(output))
    handle.terminate()
    assert ended(handle) == 143
    reached = steps(output)[-1]
    assert ended(submit(output, reached + 1)) == 0  # on the first node, which sees the folder
    assert (starts(output), steps(output)) == ([0, reached], [reached, reached + 1])


DRIVER = """
import sys, time
from pathlib import Path
from rl_training.experiment.executors.base import ExecutorOptions, Command
from rl_training.experiment.executors.opening import open_executor
executor = open_executor(ExecutorOptions("ray", address=sys.argv[1]))
words = ("tiny_work", "--output", sys.argv[2], "--steps", "1000", "--pause", "0.2")
handle = executor.submit(Command("cell", words, Path(sys.argv[2]) / "cell" / ".work"))
time.sleep(1000)
"""


@pytest.mark.slow
def test_nothing_outlives_a_driver_that_was_killed(ray_nodes, tmp_path):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, ray_nodes.address, str(tmp_path)],
                              env={**os.environ, **ray_nodes.variables})  # fmt: skip
    try:
        wait_until(lambda: steps(tmp_path))
    finally:
        driver.kill()
        driver.wait()
    wait_until(lambda: not is_alive(int(facts(tmp_path)["process"])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus": 64}, "no node of the Ray cluster has 64 CPUs (a node has "),
        ({"gpus": 8}, "no node of the Ray cluster has 1 CPU, 8 GPUs (a node has "),
        ({"memory": 2**50}, "no node of the Ray cluster has 1 CPU, 1048576.0 GiB of memory (a node has "),
    ],
)
def test_jobs_that_no_node_can_hold_are_refused(submit, options, message):
    assert not Resources(**options).fit_somewhere()
    assert Resources(**options).refusal().startswith(message)


@pytest.mark.slow
def test_the_nodes_together_hold_a_number_of_works(submit, ray_nodes):
    if ray_nodes.reason:
        pytest.skip(ray_nodes.reason)
    asked = [Resources(1), Resources(2), Resources(1, 0.5), Resources(1, 2 / 3), Resources(5)]
    assert [each.capacity() for each in asked] == [5, 2, 4, 3, 0]


@pytest.mark.slow
def test_a_work_whose_node_dies_continues_on_another_node(submit, ray_nodes, capfd):
    filler = submit(ray_nodes.hidden / "filler", 10_000)
    wait_until(lambda: steps(ray_nodes.hidden / "filler"))
    output = ray_nodes.hidden / "moved"
    handle = submit(output, 60, cpus=1)  # the first node is full
    wait_until(lambda: steps(output)[-1:] >= [2])
    for process in [*below(ray_nodes.second.pid), ray_nodes.second.pid]:
        os.kill(process, signal.SIGKILL)
    filler.terminate()
    assert ended(filler) == 143
    assert ended(handle, 100) == 0
    first, again = starts(output)
    assert (first, again >= 2, steps(output)) == (0, True, [59, 60])
    assert "died; it continues from its last checkpoint on another worker" in capfd.readouterr().err
