"""Kills processes with SIGKILL and starts them again: nothing may be lost, repeated or different.

python benchmarks/resume.py runs [--cases NAME ...] [--kills 20] [--jobs N] > benchmarks/results/kill_resume.json
python benchmarks/resume.py bench > benchmarks/results/bench_resume.json

`runs` kills training runs at random moments of their duration, imports included. Every fourth kill waits from its
moment until a checkpoint is being written. The resumed run must equal an uninterrupted one byte for byte.
`bench` kills a benchmark of twelve cells half way. Finished cells must not be touched, no logged step may be trained
again, and the table must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from command_line import COMMAND, SINGLE_THREADED, ask, shown
from provenance import provenance

from rl_training.experiment.verify import compare_runs
from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import list_checkpoints

# Intervals that do not divide each other, so that checkpoints fall inside episodes and between lines of the log.
SAC_OPTIONS = "--steps 700 --set learning_starts=150 --set checkpoint_interval=60 --set eval_interval=250"
CASES = {
    "iql": "iql/pendulum --steps 2000 --set checkpoint_interval=170 --set eval_interval=450",
    "sac_pendulum": f"sac/pendulum {SAC_OPTIONS}",
    "sac_hopper": f"sac/hopper {SAC_OPTIONS}",
    "ppo_cartpole": "ppo/cartpole --steps 12000 --set checkpoint_interval=1000 --set eval_interval=5000",
    "iql_5_seeds": "iql/pendulum --seeds 0-4 --steps 600 --set checkpoint_interval=70 --set eval_interval=250",
    "sac_5_seeds": "sac/pendulum --seeds 0-4 --steps 400 --set learning_starts=150 --set checkpoint_interval=60",
}
EVERYWHERE = "--set eval_episodes=2 --device cpu --threads 1 --json"
ATTEMPTS = 10  # a kill after the end of the run is repeated at another moment

BENCH_CONFIGS = "bc/pendulum,iql/pendulum,xql/pendulum,td3_bc/pendulum,cql/pendulum,cal_ql/pendulum,sac/pendulum,\
ppo/pendulum,dqn/cartpole,ppo/cartpole,cql/cartpole,sac/hopper"
BENCH_OPTIONS = (
    *("--seeds", "0-1", "--steps", "600", "--episodes", "2", "--set", "hidden_sizes=[32,32]"),
    *("--set", "eval_interval=200", "--set", "eval_episodes=1", "--set", "checkpoint_interval=100"),
)


class Kill(NamedTuple):
    moment: float  # seconds after the start
    checkpoint: str | None  # the newest complete one
    in_save: bool  # whether a checkpoint was left incomplete
    differences: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("runs", help="kill training runs at random moments")
    runs.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help=", ".join(CASES))
    runs.add_argument("--kills", type=int, default=20, metavar="N", help="kills of each case (default: 20)")
    runs.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, one thread each")
    runs.add_argument("--seed", type=int, default=0, help="random seed for the moments")
    bench = commands.add_parser("bench", help="kill a benchmark half way")
    bench.add_argument("--jobs", type=int, default=2, metavar="N", help="cells at a time")
    args = parser.parse_args()
    return kill_runs(args) if args.command == "runs" else kill_bench(args.jobs)


def kill_runs(args: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="kill_resume_"))
    kills = {name: try_case(name, folder / name, args.kills, seed=args.seed, jobs=args.jobs) for name in args.cases}
    result = summary(kills)
    print(json.dumps(result, indent=2))
    if any(kill.differences for case in kills.values() for kill in case):
        print(f"runs that differ are kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def try_case(name: str, folder: Path, count: int, *, seed: int, jobs: int) -> list[Kill]:
    reference, start = folder / "reference", time.monotonic()
    ask(command(name, reference))
    duration = time.monotonic() - start
    with ThreadPoolExecutor(jobs) as pool:
        trials = [
            pool.submit(try_kill, name, folder, number, duration, random.Random(f"{seed} {name} {number}"))
            for number in range(count)
        ]
        return [trial.result() for trial in trials]


def try_kill(name: str, folder: Path, number: int, duration: float, moments: random.Random) -> Kill:
    """Kills a run once, starts it again with the same command and compares it with the reference."""
    run = folder / f"kill_{number}"
    for _ in range(ATTEMPTS):
        shutil.rmtree(run, ignore_errors=True)
        moment = moments.uniform(0, duration)
        saves = parts(name, run)[-1] / "checkpoints"
        if killed(command(name, run), moment, saving=saves if number % 4 == 3 else None):
            break
    else:
        raise RuntimeError(f"{name}: {ATTEMPTS} runs in a row ended before the kill")
    complete = [path.name for path in list_checkpoints(saves)]
    in_save = any(saves.glob(".tmp-*"))
    kill = Kill(moment, complete[-1] if complete else None, in_save, restarted(name, run, folder / "reference"))
    print(f"{name}, kill {number + 1}: {kill}", file=sys.stderr, flush=True)
    if not kill.differences:
        shutil.rmtree(run)
    return kill


def restarted(name: str, run: Path, reference: Path) -> list[str]:
    """Resumes the run to its end and returns its differences from the reference."""
    try:
        ask(command(name, run))
        both = zip(parts(name, reference), parts(name, run), strict=True)
        return [found for whole, resumed in both for found in compare_runs(whole, resumed)]
    except (RuntimeError, CheckpointError) as error:
        return [str(error)]


def parts(name: str, run: Path) -> list[Path]:
    """The run directory, or one for each seed."""
    return [run / f"seed_{seed}" for seed in range(5)] if "--seeds" in CASES[name] else [run]


def command(name: str, run: Path) -> list[str]:
    return ["train", *CASES[name].split(), *EVERYWHERE.split(), "--output", str(run)]


def killed(arguments: list[str], moment: float, *, saving: Path | None) -> bool:
    """Kills a process at the moment, or at the first save after it; False if it ended before."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=SINGLE_THREADED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        while saving is not None and process.poll() is None and not any(saving.glob(".tmp-*")):
            time.sleep(0.0005)
    process.kill()
    return process.wait() == -signal.SIGKILL


def summary(kills: dict[str, list[Kill]]) -> dict[str, Any]:
    equal = {name: sum(not kill.differences for kill in case) for name, case in kills.items()}
    return {
        "what": "kill -9 at random moments, started again: equal to the run never stopped, byte for byte",
        "result": ", ".join(f"{name} {equal[name]} of {len(case)}" for name, case in kills.items()),
        "goal": "20 of 20 each",
        "kills": {name: [kill._asdict() for kill in case] for name, case in kills.items()},
        "kills_in_a_save": {name: sum(kill.in_save for kill in case) for name, case in kills.items()},
        "commands": [shown(command(name, Path("RUN"))) for name in kills],
        **provenance(),
    }


def kill_bench(jobs: int) -> int:
    with tempfile.TemporaryDirectory(prefix="bench_resume_") as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        start_bench(whole, jobs).wait()
        process = start_bench(killed, jobs)
        while len(finished(killed)) < 6 and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)  # the benchmark and the processes of its cells
        process.wait()
        before = {cell: written(cell) for cell in finished(killed)}
        logged = logged_steps(killed)
        start_bench(killed, jobs).wait()
        untouched = all(written(cell) == files for cell, files in before.items())
        result = bench_summary(table(whole), table(killed), untouched, len(before), repeated(logged))
    print(json.dumps({**result, **provenance()}, indent=2))
    return 0 if result["equal"] and untouched and not result["rows_trained_again"] else 1


def start_bench(directory: Path, jobs: int) -> subprocess.Popen[bytes]:
    words = [*COMMAND, *bench_command(directory), "--jobs", str(jobs)]
    return subprocess.Popen(
        words, env=SINGLE_THREADED, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def bench_command(directory: Path) -> list[str]:
    return ["bench", "--configs", BENCH_CONFIGS, *BENCH_OPTIONS, "--output", str(directory)]


def finished(directory: Path) -> list[Path]:
    """Cells that have a result."""
    return sorted(file.parent for file in directory.glob("*/result.json"))


def written(cell: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in cell.rglob("*") if file.is_file()}


def logged_steps(directory: Path) -> dict[Path, list[str]]:
    """Lines of every run's log up to its newest checkpoint, which must not be written again."""
    found: dict[Path, list[str]] = {}
    for run in directory.glob("*/seed_*"):
        saved = [int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")]
        lines = (run / "metrics.jsonl").read_text().splitlines() if saved else []
        found[run] = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= max(saved)]
    return found


def repeated(before: dict[Path, list[str]]) -> int:
    """Number of lines that changed; each line has the time of its writing."""
    after = {run: set((run / "metrics.jsonl").read_text().splitlines()) for run in before}
    return sum(line not in after[run] for run, lines in before.items() for line in lines)


def table(directory: Path) -> list[dict[str, Any]]:
    printed = subprocess.run(
        [*COMMAND, "compare", str(directory), "--json"], capture_output=True, text=True, check=True
    )
    tasks: list[dict[str, Any]] = json.loads(printed.stdout)["tasks"]
    return tasks


def bench_summary(
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
        "commands": [shown(bench_command(Path("BENCH"))), "kill -9, and the same again"],
    }


if __name__ == "__main__":
    sys.exit(main())
