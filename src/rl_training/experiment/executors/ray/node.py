"""Two small programs around Ray, each run as a process of its own: a local Ray, and a trial connection to a cluster.

The local Ray ends when its standard input closes, so it never outlives the process that started it. It has its own
session, because the signals of the terminal would otherwise end it before the runs have saved.
"""

import sys
from typing import Any

OBJECT_STORE_BYTES = 100 * 2**20  # results of commands are files, so it holds next to nothing
SETTINGS: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


def run_local(folder: str) -> None:
    """Starts Ray on this machine, prints its address and waits for the end of the standard input."""
    import shutil

    import ray

    try:
        context = ray.init(
            include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES, _temp_dir=folder, **SETTINGS
        )
        print(context.address_info["gcs_address"], flush=True)
        sys.stdin.read()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def try_connection(address: str) -> None:
    """Connects to a cluster and prints the reason if that fails. `ray.init` alone may wait for minutes."""
    import ray

    try:
        ray.init(address=address, **SETTINGS)
    except Exception as error:
        reasons: list[BaseException] = [error]
        while (cause := reasons[-1].__cause__) is not None:
            reasons.append(cause)
        print(f"{type(reasons[-1]).__name__}: {reasons[-1]}", flush=True)
        sys.exit(1)
    ray.shutdown()


if __name__ == "__main__":
    {"local": run_local, "try": try_connection}[sys.argv[1]](sys.argv[2])
