"""A command without torch for tests: `python -m tiny_work --output DIR --steps N --pause S [--config FILE]`.

It appends a line to DIR/cell/starts.txt, saves a checkpoint at each step, keeps two, and continues from the last one. A
first SIGTERM or SIGINT ends it after the present step, a second one at once.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from rl_training.experiment.processes.signals import caught_signals
from rl_training.processes import kill_with_starter

VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def main(output: Path, steps: int, pause: float, config: str | None) -> int:
    checkpoints = output / "cell" / "run" / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    found = sorted(int(path.name.removeprefix("step_")) for path in checkpoints.glob("step_*"))
    first = found[-1] if found else 0
    with (output / "cell" / "starts.txt").open("a") as file:
        file.write(f"{first}\n")
    facts = {name: os.environ.get(name) for name in VARIABLES} | {"config": config and Path(config).read_text()}
    print(
        json.dumps({**facts, "directory": os.getcwd(), "input": sys.stdin.read(), "process": os.getpid()}), flush=True
    )
    print("started", file=sys.stderr, flush=True)

    def end_at_once(number: int) -> None:
        if len(caught) > 1:
            sys.exit(3)

    with caught_signals(end_at_once) as caught:
        for step in range(first + 1, steps + 1):
            save(checkpoints, step)
            end = time.monotonic() + pause
            while time.monotonic() < end:
                time.sleep(0.02)
                if caught and pause < 100:
                    return 128 + caught[0]
    (output / "cell" / "result.json").write_text(json.dumps({"steps": steps}))
    return 0


def save(checkpoints: Path, step: int) -> None:
    temporary = checkpoints / ".tmp-save"
    temporary.mkdir()
    (temporary / "state.json").write_text(f"{step}" * 1000)
    (temporary / "manifest.json").write_text(f"{step}")
    temporary.rename(checkpoints / f"step_{step:09d}")
    shutil.rmtree(checkpoints / f"step_{step - 2:09d}", ignore_errors=True)


if __name__ == "__main__":
    kill_with_starter()
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    numbers = int(options["--steps"]), float(options["--pause"])
    sys.exit(main(Path(options["--output"]), *numbers, options.get("--config")))
