"""Failed trials and Ctrl-C: the study records them, and the same command continues it."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from rl_training.experiment.executors.base import Command, Handle
from rl_training.experiment.tuning.plan import read_plan

pytest.importorskip("optuna")

from rl_training.experiment.tuning.study import Study


def test_a_failed_trial_is_recorded_and_the_study_goes_on(studies):
    found = studies.report(
        "--search", "num_steps=64,63", "--no-baseline", base=without(studies.command, "num_steps=64")
    )
    states = {trial["state"]: trial for trial in found["trials"]}
    assert set(states) == {"done", "failed"}
    assert (states["failed"]["params"]["num_steps"], states["failed"]["value"]) == (63, None)
    assert states["failed"]["error"] == "batch_size must divide num_steps * num_envs = 63, got 32"
    assert found["best"]["params"]["num_steps"] == 64


def without(command: list[str], override: str) -> list[str]:
    """The usual command without one --set."""
    place = command.index(override)
    return [*command[: place - 1], *command[place + 1 :]]


def test_a_mistake_that_fails_every_trial_stops_the_study_with_its_error(studies):
    result = studies.tune("--set", "env_kwargs={nonsense: 1}")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: no trial can be trained: ")
    assert "nonsense" in last
    assert len(studies.executor.commands) == 3
    stored = Study(studies.folder, read_plan(studies.folder).space()).trials()
    assert [trial.state for trial in stored] == ["running"] * 3  # so that the same command repeats them


class Interrupted(Handle):
    """A trial during which Ctrl-C is pressed; it saves and ends."""

    def __init__(self, command: Command) -> None:
        (command.folder / "stdout.txt").touch()
        self.code: int | None = None
        os.kill(os.getpid(), signal.SIGINT)

    def poll(self) -> int | None:
        return self.code

    def stop(self, number: int) -> None:
        assert number == signal.SIGINT
        self.code = 128 + number

    def kill(self) -> None:
        raise AssertionError("it has time to save")


@pytest.mark.parametrize("stage", ["trial 4", "base"])
def test_ctrl_c_stops_the_study_and_the_same_command_continues_it(continued, monkeypatch, stage):
    executor, run = continued.executor, continued.executor.submit
    shutil.rmtree(continued.folder / "final")
    count = 6 if stage == "trial 4" else 4
    monkeypatch.setattr(executor, "submit", lambda each: Interrupted(each) if each.name == stage else run(each))
    stopped = continued.tune("--trials", count, "--json")
    found = json.loads(stopped.stdout)
    assert (stopped.exit_code, found["status"], found["best_config"]) == (130, "stopped", None)
    assert [trial["state"] for trial in found["trials"]] == ["done"] * 4 + ["stopped", "waiting"][: count - 4]
    assert "repeat the command to continue" in continued.tune("--trials", count).stdout
    monkeypatch.undo()
    executor.commands.clear()
    assert continued.report("--trials", count)["status"] == "done"
    names = [command.name for command in executor.commands if command.name.startswith("trial ")]
    assert names == ["trial 4", "trial 5"][: count - 4]
