"""A bench on a Ray that is started for it: closed to other machines, and the same results as on this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")

SMALL = ["--seeds", "0", "--episodes", "2", "--set", "hidden_sizes=[8]", "--set", "eval_interval=0"]
TWELVE = ["--algos", "dqn,qr_dqn,ppo", "--envs", "CartPole-v1,CartPole-v0,Acrobot-v1,MountainCar-v0",
          "--steps", "512", "--set", "checkpoint_interval=128",
          "--set", "callbacks=[counted_training:Counted]", *SMALL]  # fmt: skip


def start(output: Path, *options: str) -> subprocess.Popen[str]:
    """Starts a bench. Its trainings record their starts beside the output, in a folder with the suffix `.starts`."""
    starts = output.with_suffix(".starts")
    starts.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-m", "rl_training.cli", "bench", *options, "--output", str(output), "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env={**os.environ, "STARTS": str(starts), "PYTHONPATH": path})  # fmt: skip


def finished(bench: subprocess.Popen[str]) -> dict[str, Any]:
    stdout, stderr = bench.communicate(timeout=1500)
    assert bench.returncode == 0, stderr
    return json.loads(stdout)


def wait_until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(folder.name)] = parent, (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def below(process: int) -> dict[int, str]:
    """The command lines of the processes that a process has started, directly or not."""
    every = processes()
    found = {each: line for each, (parent, line) in every.items() if parent == process}
    for each in list(found):
        found |= below(each)
    return found


def listening(owners: set[int]) -> set[str]:
    """The addresses on which processes accept connections, in hexadecimal."""
    sockets = {
        os.readlink(link) for owner in owners for link in Path(f"/proc/{owner}/fd").iterdir() if link.is_symlink()
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the sockets of processes from /proc")
def test_a_local_ray_is_bound_to_this_machine_and_ends_with_the_command(tmp_path):
    bench = start(tmp_path / "bench", "--executor", "ray", "--algos", "ppo", "--envs", "CartPole-v1", "--steps",
                  "100000", "--set", "checkpoint_interval=1000", *SMALL)  # fmt: skip
    try:
        wait_until(lambda: list(tmp_path.glob("bench/*/seed_0/checkpoints/step_*")))
        ours = below(bench.pid)
        assert any("raylet" in line for line in ours.values())
        addresses = listening({bench.pid, *ours})
        assert addresses
        assert addresses <= LOOPBACK
        os.killpg(bench.pid, signal.SIGINT)  # what Ctrl-C does
        stdout, stderr = bench.communicate(timeout=90)
    finally:
        bench.kill()
    assert bench.returncode == 130, stderr
    assert [cell["state"] for cell in json.loads(stdout)["cells"]] == ["stopped"]
    result = json.loads((tmp_path / "bench/ppo-CartPole-v1/seed_0/result.json").read_text())
    assert (result["status"], result["stop_reason"]) == ("stopped", "stopped by SIGINT")
    wait_until(lambda: not ours.keys() & {each for each, (_, line) in processes().items() if line})
    assert list((tmp_path / "bench").glob(".ray-token")) == []


def scores(bench: dict[str, Any]) -> dict[str, Any]:
    return {cell["cell"]: (cell["state"], cell["scores"]) for cell in bench["cells"]}


def weights(output: Path) -> dict[str, bytes]:
    """The files with tensors in the last checkpoint of each cell."""
    last = [sorted(run.glob("checkpoints/step_*"))[-1] for run in output.glob("*/seed_0")]
    return {str(file.relative_to(output)): file.read_bytes() for path in last for file in path.glob("*.safetensors")}


def starts(output: Path) -> dict[str, list[int]]:
    """The steps at which the trainings of each cell started."""
    files = output.with_suffix(".starts").iterdir()
    return {file.name: [int(word) for word in file.read_text().split()] for file in files}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Twelve cells by the executor local."""
    output = tmp_path_factory.mktemp("here") / "bench"
    return output, finished(start(output, *TWELVE, "--jobs", "2"))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twelve_cells_give_the_same_table_and_the_same_weights(here, tmp_path):
    output = tmp_path / "bench"
    table = finished(start(output, *TWELVE, "--executor", "ray"))
    assert scores(table) == scores(here[1])
    assert len(scores(table)) == 12
    assert weights(output) == weights(here[0]) != {}
    assert {*map(tuple, starts(output).values())} == {(0,)}


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_worker_and_then_the_driver_are_killed_and_no_cell_is_trained_twice(here, tmp_path):
    output = tmp_path / "bench"
    command = [*TWELVE, "--executor", "ray"]
    bench = start(output, *command)
    try:
        wait_until(lambda: half_trained(output))
        first = half_trained(output)[0]
        victim = next(each for each, line in below(bench.pid).items() if f"--cell {first} " in line)
        os.kill(processes()[victim][0], signal.SIGKILL)  # the worker of Ray that started it
        wait_until(lambda: len([*output.glob("*/result.json")]) > 2 and {*half_trained(output)} - {first}, 900)
        ours = below(bench.pid)
    finally:
        bench.kill()
        _, stderr = bench.communicate()
    assert "it continues from its last checkpoint on another worker" in stderr
    wait_until(lambda: not ours.keys() & {each for each, (_, line) in processes().items() if line})
    table = finished(start(output, *command))
    assert scores(table) == scores(here[1])
    assert weights(output) == weights(here[0]) != {}
    begun = starts(output)
    assert {name for name, each in begun.items() if each.count(0) != 1} == set()
    assert any(len(each) > 1 for each in begun.values())


def half_trained(output: Path) -> list[str]:
    """The cells with a checkpoint whose training has not ended."""
    saved = {path.parts[-4] for path in output.glob("*/seed_0/checkpoints/step_*")}
    return sorted(cell for cell in saved if not (output / cell / "seed_0" / "result.json").exists())
