"""A command for tests of executors: `python -m counting_work RUN STEPS` counts to STEPS and saves each step.

It continues after the last step it has saved. With STEPS 0 it never saves, with a negative number it fails.
"""

import signal
import sys
import time
from pathlib import Path


def main(run: Path, steps: int) -> None:
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    if steps < 0:
        sys.exit("error: no number below 0")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with (run / "starts.txt").open("a") as starts:
        starts.write("start\n")
    for step in range(len(list(checkpoints.iterdir())), steps or 10_000):
        time.sleep(0.05)
        if steps:
            (checkpoints / f"step_{step}").touch()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
