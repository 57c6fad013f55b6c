"""Mutation tests: applies one wrong line at a time to a copy of the source and runs the tests of its area.

A mutant is killed when a test fails, and survives when all tests of its area pass. `mutants.yaml` holds the list.
Run it with `make mutants`, or for one part with `python tests/mutants/run.py --only iql`.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import json
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.yaml")
LIMIT = 60.0  # seconds for the tests of one mutant
PACKAGE = "rl_training"
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider")
PASSED, BROKEN = 0, 2  # exit codes of pytest; BROKEN: a test file cannot be imported
# Imported once and shared by all mutants, because they take longer than most tests.
PRELOADED = "torch torch._dynamo numpy gymnasium pydantic hypothesis"


class Mutant(NamedTuple):
    file: str  # below src/rl_training
    old: str
    new: str
    tests: tuple[str, ...]  # arguments of pytest, below tests
    equivalent: str = ""  # why no test can kill it

    @property
    def shown(self) -> str:
        return f"{self.file}: {self.old.strip()}  ->  {self.new.strip()}"

    def applied(self, text: str) -> str:
        """Returns the source with the wrong line; raises ValueError unless the old text occurs exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {count} times, expected once; update {LIST.name}")
        return text.replace(self.old, self.new)


class Outcome(NamedTuple):
    mutant: Mutant
    state: str  # "killed", "survived" or "timeout"
    seconds: float


def load_mutants(path: Path = LIST) -> list[Mutant]:
    """Reads the list. Mutants without tests of their own take those of their file."""
    return [
        Mutant(file, each["old"], each["new"], tuple(each.get("tests", area["tests"])), each.get("equivalent", ""))
        for file, area in yaml.safe_load(path.read_text()).items()
        for each in area["mutants"]
    ]


def check_mutants(mutants: Sequence[Mutant], source: Path) -> None:
    """Raises ValueError or SyntaxError for a mutant that no longer fits the source."""
    for mutant in mutants:
        ast.parse(mutant.applied((source / PACKAGE / mutant.file).read_text()), mutant.file)


class Task(NamedTuple):
    """The tests of one area, with a mutant or with the unchanged source."""

    tests: tuple[str, ...]
    mutant: Mutant | None = None


class Process(NamedTuple):
    """Pytest in a forked process, which imports this copy of the source."""

    task: Task
    copy: Path
    text: str  # of the mutant's file in the copy, before the mutant
    pid: int
    started: float

    @classmethod
    def start(cls, task: Task, copy: Path, root: Path) -> Process:
        text = ""
        if task.mutant is not None:
            file = copy / PACKAGE / task.mutant.file
            text = file.read_text()
            file.write_text(task.mutant.applied(text))
        pid = os.fork()
        if not pid:
            os.setsid()  # so that the processes that a test starts can be ended with it
            run_tests(task.tests, copy, root)
        return cls(task, copy, text, pid, time.monotonic())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def poll(self) -> int | None:
        """Returns the exit code, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def end(self) -> None:
        """Ends what is left of it and takes the mutant out of the copy."""
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        if self.task.mutant is not None:
            (self.copy / PACKAGE / self.task.mutant.file).write_text(self.text)


def run_tests(tests: Sequence[str], copy: Path, root: Path) -> NoReturn:
    """Runs pytest and exits with its code; its output goes to a file beside the copy."""
    code = BROKEN
    try:
        os.chdir(root)
        os.dup2(os.open(output_of(copy), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path.insert(0, str(copy))
        code = int(pytest.main([*OPTIONS, *(f"tests/{each}" for each in tests)]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def output_of(copy: Path) -> Path:
    return copy.with_suffix(".log")


def copy_source(root: Path, copy: Path) -> Path:
    shutil.copytree(root / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    # Compiled by the hash of the text: by its time, a change within the same second would go unnoticed.
    compileall.compile_dir(copy, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    return copy


def run_tasks(tasks: Sequence[Task], copies: Sequence[Path], root: Path) -> Iterator[tuple[Process, int | None]]:
    """Runs the tasks, one per copy at a time; yields each with its exit code, or None after `LIMIT` seconds."""
    waiting, free, running = deque(tasks), list(copies), list[Process]()
    try:
        while waiting or running:
            while waiting and free:
                running.append(Process.start(waiting.popleft(), free.pop(), root))
            for process in list(running):
                code = process.poll()
                if code is None and process.seconds < LIMIT:
                    continue
                running.remove(process)
                process.end()
                yield process, code
                free.append(process.copy)
            time.sleep(0.02)
    finally:
        for process in running:
            process.end()


def run_mutants(
    mutants: Sequence[Mutant], root: Path = ROOT, *, jobs: int = 2, report: Callable[[str], Any] = print
) -> list[Outcome]:
    """Tests every mutant; raises ValueError if one does not fit the source or if the source itself fails."""
    check_mutants(mutants, root / "src")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [copy_source(root, Path(folder) / str(number)) for number in range(jobs)]
        areas = [Task(tests) for tests in dict.fromkeys(mutant.tests for mutant in mutants)]
        for process, code in run_tasks(areas, copies, root):
            if code != PASSED:
                output = output_of(process.copy).read_text()[-2000:]
                names = " ".join(process.task.tests)
                raise ValueError(f"without a mutant these tests fail or take over {LIMIT:g} s: {names}\n{output}")
        report(f"the unchanged source passes the tests of {len(areas)} areas")
        for process, code in run_tasks([Task(each.tests, each) for each in mutants], copies, root):
            if process.task.mutant is not None:
                state = "timeout" if code is None else "killed" if code else "survived"
                outcomes.append(Outcome(process.task.mutant, state, process.seconds))
                report(f"{len(outcomes)}/{len(mutants)} {state} {process.seconds:.1f} s  {process.task.mutant.shown}")
    return outcomes


def summary(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """Totals and survivors; `unexplained` are those that the list does not call equivalent."""
    survivors = [outcome.mutant for outcome in outcomes if outcome.state == "survived"]
    return {
        "mutants": len(outcomes),
        **{state: Counter(each.state for each in outcomes)[state] for state in ("killed", "timeout", "survived")},
        "seconds": round(seconds, 1),
        "survivors": [mutant._asdict() for mutant in survivors],
        "unexplained": [mutant.shown for mutant in survivors if not mutant.equivalent],
        "outcomes": [
            {"mutant": each.mutant.shown, "state": each.state, "seconds": round(each.seconds, 1)} for each in outcomes
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested at the same time (default 2)")
    parser.add_argument("--only", default="", help="test only mutants whose file or text holds this")
    parser.add_argument("--preload", default=PRELOADED, help=f"modules imported once for all (default {PRELOADED!r})")
    parser.add_argument("--out", type=Path, help="write the result as JSON to this file")
    options = parser.parse_args(arguments)
    mutants = [mutant for mutant in load_mutants() if options.only in mutant.shown]
    if not mutants or options.jobs < 1:
        parser.error(f"no mutant holds {options.only!r}" if not mutants else "--jobs must be at least 1")
    started = time.monotonic()
    os.environ["OMP_NUM_THREADS"], sys.dont_write_bytecode = "1", True
    for module in options.preload.split():
        import_module(module)
    try:
        outcomes = run_mutants(mutants, jobs=options.jobs, report=lambda line: print(line, flush=True))
    except (ValueError, SyntaxError) as error:
        print(error, file=sys.stderr)
        return 2
    found = summary(outcomes, time.monotonic() - started)
    if options.out:
        options.out.write_text(json.dumps(found, indent=2) + "\n")
    for mutant in (outcome.mutant for outcome in outcomes if outcome.state == "survived"):
        print(f"survived: {mutant.shown}" + (f"  (equivalent: {mutant.equivalent})" if mutant.equivalent else ""))
    print(", ".join(f"{found[name]} {name}" for name in ("mutants", "killed", "timeout", "survived", "seconds")))
    return 1 if found["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
