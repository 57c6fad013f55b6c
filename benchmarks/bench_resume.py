"""A bench of twelve cells is killed half way and run again: nothing is run twice, and the table is the same.

python benchmarks/bench_resume.py > benchmarks/results/bench_resume.json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from command_line import COMMAND, SINGLE_THREADED, shown
from provenance import provenance

CONFIGS = "bc/pendulum,iql/pendulum,xql/pendulum,td3_bc/pendulum,cql/pendulum,cal_ql/pendulum,sac/pendulum,\
ppo/pendulum,dqn/cartpole,ppo/cartpole,cql/cartpole,sac/hopper"
OPTIONS = ("--seeds", "0-1", "--steps", "600", "--episodes", "2", "--set", "hidden_sizes=[32,32]",
           "--set", "eval_interval=200", "--set", "eval_episodes=1", "--set", "checkpoint_interval=100")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="bench_resume_") as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        start(whole, jobs).wait()
        process = start(killed, jobs)
        while len(finished(killed)) < 6 and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)  # the bench and every process of its cells
        process.wait()
        before = {cell: written(cell) for cell in finished(killed)}
        logged = trained(killed)
        start(killed, jobs).wait()
        untouched = all(written(cell) == files for cell, files in before.items())
        result = summary(table(whole), table(killed), untouched, len(before), repeated(logged))
    print(json.dumps({**result, **provenance()}, indent=2))
    return 0 if result["equal"] and untouched and not result["rows_trained_again"] else 1


def start(directory: Path, jobs: int) -> subprocess.Popen[bytes]:
    words = [*COMMAND, *command(directory), "--jobs", str(jobs)]
    return subprocess.Popen(
        words, env=SINGLE_THREADED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def command(directory: Path) -> list[str]:
    return ["bench", "--configs", CONFIGS, *OPTIONS, "--output", str(directory)]


def finished(directory: Path) -> list[Path]:
    """Cells, not single runs, that have a result."""
    return sorted(file.parent for file in directory.glob("*/result.json"))


def written(cell: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in cell.rglob("*") if file.is_file()}


def trained(directory: Path) -> dict[Path, list[str]]:
    """The lines of every run's log up to its newest checkpoint: what no run may train, and log, again."""
    found: dict[Path, list[str]] = {}
    for run in directory.glob("*/seed_*"):
        saved = [int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")]
        lines = (run / "metrics.jsonl").read_text().splitlines() if saved else []
        found[run] = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= max(saved)]
    return found


def repeated(before: dict[Path, list[str]]) -> int:
    """Lines that are not there any more, with the time they were written at."""
    after = {run: set((run / "metrics.jsonl").read_text().splitlines()) for run in before}
    return sum(line not in after[run] for run, lines in before.items() for line in lines)


def table(directory: Path) -> list[dict[str, Any]]:
    said = subprocess.run([*COMMAND, "compare", str(directory), "--json"], capture_output=True, text=True, check=True)
    tasks: list[dict[str, Any]] = json.loads(said.stdout)["tasks"]
    return tasks


def summary(
    whole: list[dict[str, Any]], resumed: list[dict[str, Any]], untouched: bool, done: int, twice: int
) -> dict[str, Any]:
    equal = whole == resumed
    return {
        "what": "a bench of 12 cells, killed half way and run again",
        "result": f"{done} cells were done and {'not touched' if untouched else 'TOUCHED'} again, "
        f"{twice} of the logged rows were trained again, the table is {'the same' if equal else 'ANOTHER'}",
        "goal": "nothing run twice, same table",
        "equal": equal,
        "rows_trained_again": twice,
        "commands": [shown(command(Path("BENCH"))), "kill -9, and the same again"],
    }


if __name__ == "__main__":
    sys.exit(main())
