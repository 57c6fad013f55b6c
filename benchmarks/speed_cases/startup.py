"""Seconds from the command to the first step of `rl-training train`, with its imports.

The first step follows the line that names environment, algorithm and device. `first log entry` is the end of the first
rollout and its updates. `import torch` is a process that imports PyTorch and ends: no run can start sooner.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from command_line import COMMAND

from speed_cases.watched import log_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--config", default="ppo/cartpole")
    parser.add_argument("--device", default="auto")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    times = [start_times(args.config, args.device) for _ in range(args.repeats)]
    found = {name: [each[name] for each in times] for name in times[0]}
    parts = [f"{name} {median(each):.2f} s [{min(each):.2f}, {max(each):.2f}]" for name, each in found.items()]
    return {
        "what": f"Command to first step, `train {args.config}`: median [min, max]",
        "result": "; ".join(parts),
        "goal": "3 s",
        "page": "performance",
        "seconds": found,
        "commands": [f"python benchmarks/speed.py startup --config {args.config} --device {args.device}"],
    }


def start_times(config: str, device: str) -> dict[str, float]:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    torch_seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [*COMMAND, "train", config, "--steps", "256", "--device", device, "--output", str(run),
                 "--set", "eval_interval=0", "--set", "log=[]"]  # fmt: skip
        begun, start = time.time(), time.perf_counter()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            first = next((line for line in process.stderr if " in, " in line), None)
            seconds = time.perf_counter() - start
            rest = process.stderr.read()
        if first is None or process.returncode:
            raise SystemExit(f"`{' '.join(words)}` ended with {process.returncode}: {rest}")
        logged = log_rows(run)[0]["time"] - begun
    return {"import torch": torch_seconds, "first step": seconds, "first log entry": logged}
