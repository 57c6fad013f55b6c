"""A Slurm cluster of one node on loopback, from Debian's packages slurm-wlm and munge, for tests.

    python tests/executors/slurm_cluster.py COMMAND ...     runs a command while the cluster is up

The cluster has its own folder, ports and munge key. Several can run at a time, and a Slurm that is installed on the
machine is left alone.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import IO

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "setpriv")
START_SECONDS = 30
CONFIG = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=64000 State=UNKNOWN
PartitionName=main Default=YES Nodes=ALL MaxTime=60 State=UP
"""


def missing() -> str | None:
    """Why the cluster cannot be started on this machine; None if it can."""
    if sys.platform != "linux":
        return "Slurm runs on Linux only"
    if os.geteuid() != 0:
        return "the daemons of the test cluster need root"
    absent = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    return f"{absent[0]} not found: apt-get install slurm-wlm munge" if absent else None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin"


@contextmanager
def one_node_cluster(*, cpus: int = 4) -> Iterator[dict[str, str]]:
    """Yields the environment variables with which Slurm's commands reach the cluster. Ends all daemons and jobs."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_kill_rest, folder)
        environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        _write_config(folder, cpus)
        _start_munge(stack, folder)
        _start(stack, folder, ["slurmctld", "-D", "-c", "-f", environment["SLURM_CONF"]])
        _wait(folder, "slurmctld", lambda: _answers(["scontrol", "ping"], environment, "UP"))
        stack.callback(_cancel_all, environment)
        _start(stack, folder, ["slurmd", "-D", "-f", environment["SLURM_CONF"]])
        _wait(folder, "slurmd", lambda: _answers(["sinfo", "-h", "-o", "%T"], environment, "idle"))
        yield environment


def _write_config(folder: Path, cpus: int) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    controller_port, node_port = _free_ports(2)
    host = socket.gethostname().split(".")[0]
    values = {"folder": folder, "host": host, "cpus": cpus, "controller_port": controller_port, "node_port": node_port}
    (folder / "slurm.conf").write_text(CONFIG.format(**values))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start_munge(stack: ExitStack, folder: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
    options = [f"--{option}={folder / name}" for option, name in files.items()]
    folder.chmod(0o711)
    _start(stack, folder, ["munged", "--foreground", "--force", f"--key-file={key}", *options])
    _wait(folder, "munged", (folder / "munge.socket").exists)


def _start(stack: ExitStack, folder: Path, command: list[str]) -> None:
    log: IO[bytes] = stack.enter_context((folder / f"{command[0]}.out").open("wb"))
    environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}  # see `_kill_rest`
    command = ["setpriv", "--pdeathsig", "TERM", *command]  # if this process is killed
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    stack.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(folder: Path, daemon: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            logs = [folder / f"{daemon}.out", folder / f"{daemon}.log"]
            text = "\n".join(log.read_text(errors="replace") for log in logs if log.exists())
            raise RuntimeError(f"{daemon} did not start within {START_SECONDS} s:\n{text}")
        time.sleep(0.1)


def _answers(command: list[str], environment: dict[str, str], expected: str) -> bool:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=30)
    return expected in done.stdout


def _cancel_all(environment: dict[str, str]) -> None:
    """Ends every job before the daemons end, since the processes of a job would outlive them."""
    variables = {**os.environ, **environment}
    subprocess.run(["scancel", "--user", str(os.getuid())], env=variables, capture_output=True, timeout=30)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        left = subprocess.run(["squeue", "-h"], env=variables, capture_output=True, text=True, timeout=30)
        if not left.stdout.strip():
            return
        time.sleep(0.2)


def _kill_rest(folder: Path) -> None:
    """Kills what is left of the jobs, for instance the processes of a job that the daemons did not see end."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if f"SLURM_CONF={folder}/".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def wait_for(ready: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def slurm_command(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def start_now(job: str) -> None:
    """Slurm starts a requeued job only after two minutes, and a start in the same second fails."""
    wait_for(lambda: " PENDING " in slurm_command("squeue", "-h", "-r", "-j", job, "-o", " %T "))
    time.sleep(1.5)
    slurm_command("scontrol", "update", f"jobid={job}", "StartTime=now")


def main(command: list[str]) -> int:
    if reason := missing():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the daemons are ended
    with one_node_cluster() as environment:
        return subprocess.run(command or ["sinfo"], env={**os.environ, **environment}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
