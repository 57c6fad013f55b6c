"""Ends a process at its k-th file operation, to test that a crash at any moment loses nothing."""

from __future__ import annotations

import builtins
import io
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CRASHED = 9
OPERATIONS = ("replace", "rename", "link", "mkdir", "unlink", "remove", "rmdir", "truncate")


class CrashPoints:
    """Counts the operations that change files, and ends the process before number `moment` (0, 1, …).

    With `power_loss`, every file is cut to what was flushed to disk.
    """

    def __init__(self, moment: int, *, power_loss: bool = False) -> None:
        self.moment, self.power_loss, self.count = moment, power_loss, 0
        self.flushed: dict[str, int] = {}  # bytes on disk of each file that was opened for writing

    def install(self) -> None:
        """Replaces functions of `os` and `open`. They stay replaced: call it in a forked process."""
        for name in OPERATIONS:
            setattr(os, name, self._counted(getattr(os, name)))
        self._open = open
        for module in (builtins, io):
            vars(module)["open"] = self.open
        vars(os)["fsync"] = self.fsync

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.reach()
            result = function(*arguments, **options)
            if function.__name__ in ("replace", "rename"):
                self._move(*map(str, arguments[:2]))
            return result

        return call

    def open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return self._open(file, mode, *arguments, **options)
        self.reach()
        opened = self._open(file, mode, *arguments, **options)
        self.flushed[str(file)] = os.fstat(opened.fileno()).st_size
        return opened

    def fsync(self, descriptor: int) -> None:
        """Only counts: the page cache survives the death of a process."""
        self.reach()
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name in self.flushed:
            self.flushed[name] = os.fstat(descriptor).st_size

    def reach(self) -> None:
        if self.count == self.moment:
            for name, size in self.flushed.items() if self.power_loss else ():
                if Path(name).is_file():
                    os.ftruncate(os.open(name, os.O_RDWR), size)
            os._exit(CRASHED)
        self.count += 1

    def _move(self, source: str, target: str) -> None:
        inside = {name for name in self.flushed if name == source or name.startswith(f"{source}/")}
        self.flushed |= {target + name[len(source) :]: self.flushed.pop(name) for name in inside}


def crashes(action: Callable[[], object], moment: int, *, power_loss: bool = False) -> bool:
    """Runs `action` in a forked process; returns False if it ends before the given operation."""
    child = os.fork()
    if not child:
        try:
            CrashPoints(moment, power_loss=power_loss).install()
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, CRASHED), f"the process failed with exit code {code}"
    return code == CRASHED
