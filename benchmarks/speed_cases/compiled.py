"""Time of an update on a CPU: uncompiled and compiled, in float32 and bfloat16, all forms in turn in one process."""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

import torch

from rl_training.algorithms import CATALOGUE
from rl_training.experiment.timing.trial import TimedUpdates, time_in_turns, trial_source
from rl_training.platforms import keep_freed_memory
from rl_training.types import EnvSpec

BOX = EnvSpec((11,), "box", 3, action_shape=(3,), action_low=(-1.0,) * 3, action_high=(1.0,) * 3)  # as in Hopper
DISCRETE = EnvSpec((4,), "discrete", 2)  # as in CartPole
ALGORITHMS = ("dqn", "rainbow", "qr_dqn", "sac", "td3", "redq", "tqc", "crossq", "iql", "td3_bc", "rebrac", "cql")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1, help="CPU threads for PyTorch")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each form, of which the median counts")
    parser.add_argument(
        "--only", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS), metavar="NAME", help=", ".join(ALGORITHMS)
    )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    keep_freed_memory()  # as training does
    updates = {name: milliseconds(name, args.repeats) for name in args.only}
    only = "" if len(args.only) == len(ALGORITHMS) else f" --only {' '.join(args.only)}"
    pinned = f"taskset -c {','.join(map(str, sorted(os.sched_getaffinity(0))))} "
    return {
        "what": "Milliseconds of an update on a CPU with the default options",
        "result": "; ".join(f"{name}: {text(forms)}" for name, forms in updates.items()),
        "page": "performance",
        "threads": args.threads,
        "updates": updates,
        "commands": [
            f"{pinned}python benchmarks/speed.py compiled --threads {args.threads} --repeats {args.repeats}{only}"
        ],
    }


def milliseconds(name: str, repeats: int) -> dict[str, float]:
    kind = CATALOGUE[name]
    spec = BOX if "box" in kind.action_kinds else DISCRETE
    precisions = ("float32", "bfloat16") if "precision" in kind.config_type.model_fields else ("float32",)
    changes = {"float32": {}, "bfloat16": {"precision": "bfloat16"}}
    learners = {precision: kind.build(spec, **changes[precision]) for precision in precisions}
    source = trial_source([learners["float32"]], spec, None)
    forms = {
        precision + (", compiled" if compile else ""): TimedUpdates([learner], source, compile=compile)
        for precision, learner in learners.items()
        for compile in (False, True)
    }
    for each in forms.values():
        each.warm_up()
    rounds = [time_in_turns(list(forms.values())) for _ in range(repeats)]
    return {form: 1000 * statistics.median(times) for form, times in zip(forms, zip(*rounds, strict=True), strict=True)}


def text(forms: dict[str, float]) -> str:
    return ", ".join(f"{form} {time:.3g} ms" for form, time in forms.items())
