"""Clusters on this machine for tests: Ray with two nodes, and Slurm with one.

The second node of Ray does not see the folder `hidden` of the first.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from rl_training.experiment.executors.devices import VISIBLE
from rl_training.experiment.executors.slurm import executor as slurm

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster  # type: ignore[import-not-found]

sys.path.pop(0)

HEAD = """
import sys, ray
context = ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False,
                   logging_level="ERROR", _temp_dir=sys.argv[1])
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
SECOND = """
import sys
from ray._private.node import Node
from ray._private.parameter import RayParams
parameters = RayParams(gcs_address=sys.argv[1], temp_dir=sys.argv[2], num_cpus=4, num_gpus=2, min_worker_port=0,
                       max_worker_port=0, object_store_memory=100 * 2**20, include_log_monitor=False,
                       node_manager_port=0, dashboard_agent_listen_port=None)
node = Node(parameters, head=False, shutdown_at_exit=True, spawn_reaper=True)
sys.stdin.read()
"""


class RayNodes(NamedTuple):
    address: str
    variables: dict[str, str]
    hidden: Path  # seen by the first node alone
    second: subprocess.Popen[bytes] | None
    reason: str  # why there is no second node


@pytest.fixture(scope="module")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """The first node has one CPU; the second has four, and claims to have two GPUs."""
    if find_spec("ray") is None:  # importing it here would be too early for the variables below
        pytest.skip("ray is not installed")
    hidden = tmp_path_factory.mktemp("hidden")
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": path,
    }  # fmt: skip
    environment = {**os.environ, **variables}
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        head = subprocess.Popen([sys.executable, "-c", HEAD, f"{folder}/1"], stdin=subprocess.PIPE, env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        assert head.stdout is not None
        second = None
        try:
            address = head.stdout.readline().decode().strip()
            assert address
            reason = "" if can_mount(hidden) else "hiding a folder from a node needs the right to mount"
            if not reason:
                second = start_second(address, folder, hidden, environment)
            yield RayNodes(address, variables, hidden, second, reason)
        finally:
            for node in filter(None, (second, head)):
                assert node.stdin is not None
                node.stdin.close()
                node.wait(30)


def can_mount(folder: Path) -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def start_second(address: str, folder: str, hidden: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", SECOND, address, f"{folder}/2"]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env=environment, start_new_session=True)  # fmt: skip


@pytest.fixture(scope="module")
def slurm_node() -> Iterator[None]:
    """The environment variables of a running cluster, for this process and those it starts."""
    reason = slurm_cluster.missing() if find_spec("submitit") else "submitit is not installed"
    if reason is not None:
        pytest.skip(reason)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with slurm_cluster.one_node_cluster() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in {**variables, "PYTHONPATH": path}.items():
            patch.setenv(name, value)
        patch.setattr(slurm, "QUERY_SECONDS", (0.3, 0.3))
        yield


@pytest.fixture
def all_devices_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the choice of devices that this machine may have in its environment."""
    monkeypatch.delenv(VISIBLE, raising=False)
