"""A study that trains in this process, which saves the start of an interpreter per trial."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rl_training.cli import app, tune_output
from rl_training.experiment.bench import scoring
from rl_training.experiment.executors import opening
from rl_training.experiment.executors.base import LOG, OUTPUT, Command, Executor, Handle

STUDY = ["tune", "ppo", "CartPole-v1", "--search", "learning_rate=1e-4:1e-1:log", "--search", "hidden_sizes=[4],[8,8]",
         "--steps", "256", "--set", "num_steps=64", "--set", "batch_size=32", "--set", "epochs=2", "--set", "log=none",
         "--set", "eval_interval=64", "--set", "eval_episodes=1", "--seeds", "0", "--final-seeds", "100",
         "--episodes", "2", "--trials", "4"]  # fmt: skip


class Ended(Handle):
    def __init__(self, code: int) -> None:
        self.code = code

    def poll(self) -> int:
        return self.code

    def stop(self, number: int) -> None: ...
    def kill(self) -> None: ...


class InThisProcess(Executor):
    """Runs every command to its end at once, and records the commands."""

    def __init__(self) -> None:
        self.limit = 1
        self.commands: list[Command] = []

    def submit(self, command: Command) -> Handle:
        self.commands.append(command)
        command.folder.mkdir(parents=True, exist_ok=True)
        module, *arguments = command.arguments
        if module == "rl_training.cli":
            result = CliRunner().invoke(app, arguments)
            (command.folder / OUTPUT).write_text(result.stdout)
            (command.folder / LOG).write_text(result.stderr)
            return Ended(result.exit_code)
        with redirect_stdout(StringIO()) as output:
            scoring.main(*arguments)
        (command.folder / OUTPUT).write_text(output.getvalue())
        return Ended(0)


class Studies:
    """Calls `tune` on the study in one folder."""

    command = STUDY

    def __init__(self, folder: Path, executor: InThisProcess) -> None:
        self.folder, self.executor = folder, executor

    def tune(self, *options: object, base: Sequence[object] = STUDY) -> Result:
        own = list(base)
        for option in {"--seeds", "--final-seeds"}.intersection(map(str, options)):  # refused if given twice
            del own[own.index(option) : own.index(option) + 2]
        words = [*own, "--output", self.folder, *options]
        return CliRunner().invoke(app, [str(word) for word in words])

    def report(self, *options: object, base: Sequence[object] = STUDY) -> dict[str, Any]:
        """Calls `tune --json`, which has to succeed."""
        result = self.tune(*options, "--json", base=base)
        assert result.exit_code == 0, result.stderr
        return dict(json.loads(result.stdout))


@pytest.fixture(scope="module")
def _executor() -> Iterator[InThisProcess]:
    made = InThisProcess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_executor", lambda options: made)
        patch.setattr(tune_output, "draw", lambda study: {})  # pictures take longer than the training
        yield made


@pytest.fixture(scope="module")
def finished(_executor: InThisProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A study of four trials that tests only read, and its report."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    return folder, Studies(folder, _executor).report()


@pytest.fixture
def studies(_executor: InThisProcess, tmp_path: Path) -> Studies:
    _executor.commands.clear()
    return Studies(tmp_path / "study", _executor)


@pytest.fixture
def continued(finished: tuple[Path, dict[str, Any]], studies: Studies) -> Studies:
    """A copy of the finished study, to be continued."""
    shutil.copytree(finished[0], studies.folder)
    for file in studies.folder.glob("**/*.yaml"):
        file.write_text(file.read_text().replace(str(finished[0]), str(studies.folder)))
    return studies
