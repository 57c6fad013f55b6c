"""kill -9 at random moments: the run that is started again must equal, byte for byte, the one that was never stopped.

python benchmarks/kill_resume.py [--cases NAME ...] [--kills 20] [--jobs N]

Moments are drawn evenly from the time the whole process takes, imports and all; every fourth kill waits from its moment
on until a checkpoint is being written, and strikes then.
"""

from __future__ import annotations

import argparse
import json
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
ATTEMPTS = 10  # a kill that comes when the run is over is tried again at another moment


class Kill(NamedTuple):
    moment: float  # seconds after the start
    checkpoint: str | None  # the newest one it left
    in_save: bool  # whether it left a half-written one
    differences: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="of each case (default: 20)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side, one thread each")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill_resume_"))
    kills = {name: try_case(name, folder / name, args.kills, seed=args.seed, jobs=args.jobs) for name in args.cases}
    result = summary(kills)
    print(json.dumps(result, indent=2) if args.json else result["result"])
    if any(kill.differences for case in kills.values() for kill in case):
        print(f"the runs that differ are kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def try_case(name: str, folder: Path, count: int, *, seed: int, jobs: int) -> list[Kill]:
    reference, began = folder / "reference", time.monotonic()
    ask(command(name, reference))
    duration = time.monotonic() - began
    with ThreadPoolExecutor(jobs) as pool:
        trials = [
            pool.submit(try_kill, name, folder, number, duration, random.Random(f"{seed} {name} {number}"))
            for number in range(count)
        ]
        return [trial.result() for trial in trials]


def try_kill(name: str, folder: Path, number: int, duration: float, moments: random.Random) -> Kill:
    """Kill a run once, start it again with the same command, and hold it against the reference."""
    run = folder / f"kill_{number}"
    for _ in range(ATTEMPTS):
        shutil.rmtree(run, ignore_errors=True)
        moment = moments.uniform(0, duration)
        saves = parts(name, run)[-1] / "checkpoints"
        if killed(command(name, run), moment, saving=saves if number % 4 == 3 else None):
            break
    else:
        raise RuntimeError(f"{name}: {ATTEMPTS} runs in a row were over before they could be killed")
    left = [path.name for path in list_checkpoints(saves)]
    in_save = any(saves.glob(".tmp-*"))
    kill = Kill(moment, left[-1] if left else None, in_save, restarted(name, run, folder / "reference"))
    print(f"{name}, kill {number + 1}: {kill}", file=sys.stderr, flush=True)
    if not kill.differences:
        shutil.rmtree(run)
    return kill


def restarted(name: str, run: Path, reference: Path) -> list[str]:
    """What is not as it should be once the run has been started again and is over."""
    try:
        ask(command(name, run))
        both = zip(parts(name, reference), parts(name, run), strict=True)
        return [found for whole, resumed in both for found in compare_runs(whole, resumed)]
    except (RuntimeError, CheckpointError) as error:
        return [str(error)]


def parts(name: str, run: Path) -> list[Path]:
    """The run directory, or those of its seeds."""
    return [run / f"seed_{seed}" for seed in range(5)] if "--seeds" in CASES[name] else [run]


def command(name: str, run: Path) -> list[str]:
    return ["train", *CASES[name].split(), *EVERYWHERE.split(), "--output", str(run)]


def killed(arguments: list[str], moment: float, *, saving: Path | None) -> bool:
    """Start a process and kill it at the moment, or at the first save after it; False if it was over before."""
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


if __name__ == "__main__":
    sys.exit(main())
