"""Compares updates with stable-baselines3, sb3-contrib and CORL: same parameters, batches and noise.

python benchmarks/equal_to_peers.py --peer sb3=PYTHON --peer corl=PYTHON --peer corl_jax=PYTHON --corl DIR

Every case copies the initial parameters of rl_training to the peer's own class, gives both the same batches and the
same random numbers, and compares all parameters, those of target networks included, after each number of --updates.
PYTHON is that of a peer's own venv: with stable-baselines3 and sb3-contrib for sb3, with PyTorch and NumPy for corl,
and with PyTorch and Flax for corl_jax. DIR is a clone of CORL's repository. The table is printed, and stored in
benchmarks/results/equality.json if all cases ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from command_line import SINGLE_THREADED
from equal_peers.cases import CASES, GOAL, Case
from equal_peers.ours import prepared, trained
from equal_peers.page import table
from figures import RESULTS, write
from provenance import provenance

from rl_training.types import Arrays

SCRIPTS = Path(__file__).with_name("equal_peers")
PEERS = ("sb3", "corl", "corl_jax")
COMMAND = (
    "python benchmarks/equal_to_peers.py --peer sb3=VENV/bin/python --peer corl=VENV/bin/python "
    "--peer corl_jax=VENV/bin/python --corl DIR"
)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    pythons = dict(args.peer)
    names = [name for name in args.cases if CASES[name].peer in pythons]
    origin = provenance()
    rows = [kept(name, pythons[CASES[name].peer], args, origin["commit"]) for name in names]
    print(table(rows))
    if len(rows) == len(CASES):
        write(RESULTS / "equality.json", {**summary(rows), **origin})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer", action="append", required=True, type=peer, metavar="NAME=PYTHON", help=f"one of {', '.join(PEERS)}"
    )
    parser.add_argument("--corl", type=Path, metavar="DIR", help="clone of CORL's repository")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--updates", nargs="+", type=int, default=[30, 200], metavar="N", help="multiples of 10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keeps finished cases; a later run continues there")
    args = parser.parse_args()
    if any(name.startswith("corl") for name, _ in args.peer) and args.corl is None:
        parser.error("CORL needs --corl, a clone of its repository")
    if any(updates < 1 or updates % 10 for updates in args.updates):
        parser.error(f"--updates must be multiples of 10, the updates on one rollout of PPO, got {args.updates}")
    return args


def peer(text: str) -> tuple[str, Path]:
    name, _, python = text.partition("=")
    if name not in PEERS or not Path(python).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=PYTHON, with a name of {', '.join(PEERS)}")
    return name, Path(python)


def kept(name: str, python: Path, args: argparse.Namespace, commit: str) -> dict[str, Any]:
    """The comparison of a case, read from the folder of --keep if the same commit has finished it there."""
    if args.keep is None:
        return compared(name, python, args)
    file = args.keep / f"{name}_{commit}_{args.seed}_{'_'.join(map(str, sorted(args.updates)))}.json"
    if not file.exists():
        write(file, compared(name, python, args))
    return cast("dict[str, Any]", json.loads(file.read_text()))


def compared(name: str, python: Path, args: argparse.Namespace) -> dict[str, Any]:
    case, marks = CASES[name], sorted(args.updates)
    found = {bits: differences(case, marks, bits, python, args) for bits in case.precisions}
    print(f"{name}: {found}", file=sys.stderr, flush=True)
    versions = found[32]["versions"]
    first = found[32]["max_difference"][str(marks[0])]
    return {
        "case": name, "what": case.what, "peer": peer_name(case, versions, args.corl), "seed": args.seed,
        "updates": marks, "max_difference": found[32]["max_difference"],
        "max_difference_float64": found[64]["max_difference"] if 64 in found else None,
        "max_change": found[32]["max_change"], "order_of_steps": case.order, "changed_in_peer": case.changed,
        "reason": case.reason if first > GOAL else "", "options": case.options, "peer_versions": versions,
    }  # fmt: skip


def differences(
    case: Case, marks: Sequence[int], bits: int, python: Path, args: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Largest difference between the sides, and largest change of ours, after each number of updates."""
    learner, inputs = prepared(case, marks[-1], args.seed, bits)
    with tempfile.TemporaryDirectory() as folder:
        theirs, versions = trained_by_peer(case, inputs, marks, bits, python, Path(folder), args.corl)
    ours = trained(learner, case, inputs, marks)
    initial = {key.partition("/")[2]: value for key, value in inputs.items() if key.startswith("initial/")}
    return {
        "max_difference": {str(mark): largest_difference(ours[mark], theirs[mark]) for mark in marks},
        "max_change": {str(mark): largest_difference(ours[mark], initial) for mark in marks},
        "versions": versions,
    }


def trained_by_peer(
    case: Case, inputs: Arrays, marks: Sequence[int], bits: int, python: Path, folder: Path, corl: Path | None
) -> tuple[dict[int, Arrays], dict[str, str]]:
    """Parameters of the peer after these numbers of updates, and the versions of its libraries."""
    files = {"input": str(folder / "inputs.npz"), "output": str(folder / "outputs.npz")}
    np.savez(files["input"], **inputs)
    settings = {"algo": case.algo, "options": case.options, "peer_options": case.peer_options}
    request = {**settings, **files, "discrete": case.discrete, "updates": list(marks), "bits": bits}
    words = [str(python), str(SCRIPTS / f"{case.peer}.py"), json.dumps({**request, "source": str(corl or "")})]
    ended = subprocess.run(words, env=SINGLE_THREADED, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{case.what}: the peer ended with {ended.returncode}:\n{ended.stderr.strip()}")
    with np.load(files["output"]) as file:
        found = {name: file[name] for name in file.files}
    by_mark = {mark: {n.partition("/")[2]: v for n, v in found.items() if n.startswith(f"{mark}/")} for mark in marks}
    return by_mark, json.loads(ended.stdout.splitlines()[-1])["versions"]


def largest_difference(ours: Arrays, theirs: Arrays) -> float:
    """Largest absolute difference of a parameter."""
    if ours.keys() != theirs.keys():
        raise ValueError(f"the parameters differ by name: {sorted(ours.keys() ^ theirs.keys())}")
    return max(float(np.abs(ours[name] - theirs[name].reshape(ours[name].shape)).max()) for name in ours)


def peer_name(case: Case, versions: dict[str, str], corl: Path | None) -> str:
    if case.peer.startswith("corl"):
        commit = subprocess.run(
            ["git", "-C", str(corl), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
        return f"CORL {commit.stdout.strip() or 'of unknown commit'}"
    library = next(iter(versions))
    return f"{library.replace('_', '-')} {versions[library]}"


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = str(rows[0]["updates"][0])
    equal = [row for row in rows if row["max_difference"][first] <= GOAL]
    others = ""
    for reason in ("stated reason", "no stated reason"):
        names = [row["what"] for row in rows if row not in equal and bool(row["reason"]) == (reason == "stated reason")]
        others += f"; {reason}: {', '.join(names)}" if names else ""
    return {
        "what": f"Parameters after {first} updates by the peers' own classes on the same batches and noise",
        "result": f"{len(equal)} of {len(rows)} within {GOAL:.0e}{others}",
        "goal": f"largest difference {GOAL:.0e}, or a stated reason",
        "cases": list(rows),
        "commands": [COMMAND],
    }


if __name__ == "__main__":
    main()
