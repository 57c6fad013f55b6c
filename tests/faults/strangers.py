"""Runs of strangers: forged ones, and a process that watches what opening them does.

A test file lists its cases and calls `main(cases)` when it runs as a script: `python test_….py FOLDER`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main
import yaml
from typer.testing import CliRunner

from rl_training.cli import app
from rl_training.experiment.user_errors import USER_ERRORS
from rl_training.runtime.checkpoints.format import CheckpointError, StoredFile, parse_manifest, write_file

Case = Callable[[Path], Any]
get_command = cache(typer.main.get_command)  # typer builds all commands at every call
Found = dict[str, tuple[str, list[str]]]  # name of a case -> what it ended with, and what it did

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "dqn_run"
CONFIG = yaml.safe_load((FIXTURE / "config.yaml").read_text())
STEP = "checkpoints/step_000000300"
MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Evil-v0", CartPoleEnv, max_episode_steps=20)
class Evil(CartPoleEnv):
    made = CartPoleEnv
class Wrapper(gymnasium.Wrapper): ...
class Callback: ...
class Net: ...
class Algorithm: ...
"""
FILES = ("evil.py", "pkg/__init__.py", "pkg/sub.py", "spread/inner.py", "this.py", "json.py", "my-evil.py", "moved.py",
         "linked.py", "first/moved.py")  # fmt: skip
PROCESSES = ("os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "subprocess.Popen")
OWN_PROCESSES = ("git", "uname")  # record the version and the machine when a run starts
NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto",
           "urllib.Request", "webbrowser.open")  # fmt: skip


def forge(folder: Path, name: str, contents: dict[str, bytes] | None = None, **changes: Any) -> Path:
    """A copy of a run with another config and other files in its checkpoint, all with correct checksums."""
    run = Path(shutil.copytree(FIXTURE, folder / name))
    (run / "result.json").unlink()
    (run / "config.yaml").write_text(json.dumps({**CONFIG, **changes}))
    manifest = parse_manifest(run, (run / STEP / "manifest.json").read_bytes())
    files: dict[str, StoredFile] = dict(manifest.files)
    for file, data in (contents or {}).items():
        (run / STEP / file).unlink(missing_ok=True)
        files[file] = write_file(run / STEP / file, data)
    info = {**manifest.info, "config": {**manifest.info["config"], **changes}}
    forged = manifest.model_copy(update={"info": info, "files": files})
    (run / STEP / "manifest.json").write_bytes(forged.to_bytes())
    return run


def evil(folder: Path, env_id: str = "evil:Evil-v0", **changes: Any) -> Path:
    return forge(folder, f"run_{len(list(folder.iterdir()))}", env_id=env_id, **changes)


def invoke(*arguments: object) -> None:
    """Calls a command; raises its exit code and message if it fails."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise ValueError(f"with exit code {result.exit_code}: {result.stderr}")


def command_cases(**changes: Any) -> Iterator[tuple[str, Case]]:
    """Every command that takes a run, so that a new one is tried too; `changes` are those of its config."""
    more: dict[str, list[str]] = {"predict": ["--obs", "[0, 0, 0, 0]"], "collect": ["--steps", "8", "--out", "x.npz"],
                                  "export": ["--out", "x.pt2"]}  # fmt: skip
    root: Any = get_command(app)
    groups = [((), root.commands), *(((name,), group.commands) for name, group in root.commands.items()
                                     if hasattr(group, "commands"))]  # fmt: skip
    for prefix, commands in groups:
        for name, command in commands.items():
            if any("RUN" in str(each.metavar) for each in getattr(command, "params", ()) if each.required):
                yield " ".join([*prefix, name]), partial(try_command, [*prefix, name], more.get(name, []), changes)


def try_command(words: list[str], more: list[str], changes: dict[str, Any], folder: Path) -> None:
    invoke(*words, evil(folder, **changes), *more)


def main(cases: Mapping[str, Case]) -> None:
    """Runs every case and prints what each ended with, and what it did that a stranger's file must not do."""
    folder = Path(sys.argv[1])
    mock.patch("typer.testing._get_command", get_command).start()
    events: list[str] = []
    strangers = {Path(file).with_suffix("").as_posix().replace("/", ".") for file in FILES} | {"pkg", "spread"}

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "import" and args[0] in {*strangers, "zipped", "antigravity"} - {"json"}:
            events.append(f"import {args[0]}")
        elif event == "exec" and str(getattr(args[0], "co_filename", "")).startswith(str(folder)):
            events.append(f"exec {args[0].co_filename}")
        elif event == "subprocess.Popen" and args[0] in OWN_PROCESSES:
            return
        elif event == "pickle.find_class" or event in PROCESSES or event in NETWORK:
            events.append(f"{event} {args}")

    sys.path[:0] = ["", str(folder / "archive.zip")]  # not earlier: json.py would break the interpreter itself
    sys.addaudithook(watch)
    found: Found = {}
    for name, case in cases.items():
        events.clear()
        try:
            outcome = f"returned {case(folder)!r:.60}"
        except (*USER_ERRORS, CheckpointError) as error:
            outcome = f"refused {error}"
        except Exception as error:
            outcome = f"failed {type(error).__name__}: {error}"
        found[name] = outcome, list(events)
    print(json.dumps(found))


def opened(script: str, folder: Path) -> Found:
    """Runs the cases of a test file in a process of their own, in `folder`."""
    folder = folder.resolve()
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(MODULE)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", MODULE)
    config = {**os.environ, "XDG_CONFIG_HOME": str(folder.parent / "config")}
    done = subprocess.run(
        [sys.executable, script, str(folder)], cwd=folder, env=config, capture_output=True, text=True, timeout=150,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not {"unpickled", "executed"} & {path.name for path in folder.iterdir()}
    return dict(json.loads(done.stdout.splitlines()[-1]))
