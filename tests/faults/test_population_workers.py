"""A population with worker processes: equal results, also after a crash, and dead workers are replaced."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.envs.registration import EnvSpec
from typer.testing import CliRunner

from rl_training.cli.app import app
from rl_training.envs.creation.making import EnvFactory
from rl_training.envs.pools import worker_choice
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import run_population, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState

pytestmark = pytest.mark.usefixtures("forked_workers")
SAC: dict[str, Any] = {
    "algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 40, "checkpoint_interval": 10, "eval_interval": 0,
    "env_kwargs": {"max_episode_steps": 7}, "compile": "off",
    "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 10},
}  # fmt: skip


def configs(path: Path, workers: int | str) -> list[TrainConfig]:
    given = [{**SAC, "seed": seed, "output_dir": str(path / str(seed))} for seed in (0, 1, 2)]
    return [parse_config({**each, "env_workers": workers}) for each in given]


def differing(path: Path, reference: Path) -> list[str]:
    """Returns the files that differ, except for those with `env_restarts`, which is logged with workers alone."""
    found = [line for seed in "012" for line in compare_runs(path / seed, reference / seed)]
    return [line for line in found if not line.startswith(("metrics.jsonl", "state.json"))]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference")
    run_population(configs(path, 0))
    return path


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_choice, "usable_cores", lambda: 4)
    monkeypatch.setattr(worker_choice, "may_start_processes", lambda: True)


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("workers", [2, "auto"])
def test_the_number_of_workers_changes_no_weight(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch, workers: int | str
) -> None:
    monkeypatch.setattr(worker_choice, "LEAST_SECONDS", 0.0)
    started = []

    class Count(Callback):
        def on_train_start(self, state: TrainerState) -> None:
            started.append(len(multiprocessing.active_children()))

    run_population(configs(tmp_path, workers), callbacks=Count())
    assert started == [2]
    assert differing(tmp_path, reference) == []
    if workers == "auto":  # the log does not depend on the machine
        assert [line for seed in "012" for line in compare_runs(tmp_path / seed, reference / seed)] == []
    assert f"env_workers: {workers}\n" in (tmp_path / "0" / "config.yaml").read_text()
    assert multiprocessing.active_children() == []


class CrashError(Exception):
    pass


class Crash(Callback):
    def on_step_end(self, state: TrainerState) -> None:
        if state.global_step == 25:
            raise CrashError


def test_a_population_with_workers_continues_exactly_after_a_crash(tmp_path: Path, reference: Path) -> None:
    with pytest.raises(CrashError):
        run_population(configs(tmp_path, 2), callbacks=Crash())
    assert multiprocessing.active_children() == []
    assert [result.status for result in run_population(configs(tmp_path, 2))] == ["finished"] * 3
    assert differing(tmp_path, reference) == []


def test_a_member_continues_alone_with_more_workers_than_environments(tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        run_population(configs(tmp_path, 2), callbacks=Crash())
    assert run_training(configs(tmp_path, 2)[1]).status == "finished"


class KillAWorker(Callback):
    def on_step_end(self, state: TrainerState) -> None:
        if state.global_step == 20:
            worker = multiprocessing.active_children()[0]
            worker.kill()
            worker.join()


def test_a_dead_worker_is_replaced_for_all_its_members(tmp_path: Path) -> None:
    warnings: list[str] = []
    results = run_population(configs(tmp_path, 2), callbacks=KillAWorker(), warn=warnings.append)
    assert [(result.status, result.env_restarts) for result in results] == [("finished", 1)] * 3
    [death] = [line for line in warnings if line.startswith("worker")]
    assert "of member" in death
    assert "ended by SIGKILL; its episodes are truncated and it is restarted" in death


@pytest.mark.usefixtures("many_cores")
def test_auto_uses_workers_only_if_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvFactory("CartPole-v1")
    monkeypatch.setattr(worker_choice, "LEAST_SECONDS", 0.0)
    assert [worker_choice.choose_workers(source, count) for count in (1, 2, 16)] == [0, 2, 2]
    monkeypatch.setattr(worker_choice, "shares_the_machine", lambda: True)
    assert worker_choice.choose_workers(source, 16) == 0  # beside other jobs
    monkeypatch.setattr(worker_choice, "shares_the_machine", lambda: False)
    assert worker_choice.choose_workers(EnvFactory(lambda: PendulumEnv()), 16) == 0  # cannot be imported
    assert worker_choice.choose_workers(EnvFactory("CartPole-v1", {"unknown": 1}), 16) == 0  # cannot be created
    monkeypatch.setitem(gym.registry, "Local-v0", EnvSpec("Local-v0", lambda **options: PendulumEnv(**options)))
    assert worker_choice.choose_workers(EnvFactory("Local-v0"), 16) == 0  # registered by this process alone
    of_notebook: Any = type("Notebook", (PendulumEnv,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Notebook", of_notebook, raising=False)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    for entry_point in (of_notebook, "__main__:Notebook"):
        monkeypatch.setitem(gym.registry, "Notebook-v0", EnvSpec("Notebook-v0", entry_point))
        assert worker_choice.choose_workers(EnvFactory("Notebook-v0"), 16) == 0
    monkeypatch.setattr(worker_choice, "LEAST_SECONDS", 3600.0)
    assert worker_choice.choose_workers(source, 16) == 0
    monkeypatch.setattr(worker_choice, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(worker_choice, "usable_cores", lambda: 3)
    assert worker_choice.choose_workers(source, 16) == 0


def test_a_script_that_processes_would_run_again_gets_no_workers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    script, command = ModuleType("__main__"), ModuleType("__main__")
    script.__file__, command.__file__ = "/home/me/train.py", "/usr/bin/rl-training"
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert not worker_choice.may_start_processes()
    monkeypatch.setitem(sys.modules, "__main__", command)
    assert worker_choice.may_start_processes()


def test_the_start_message_has_the_number_of_workers(tmp_path: Path) -> None:
    command = ["train", "sac", "Pendulum-v1", "--seeds", "0,1", "--steps", "4", "--output", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*command, "--set", "env_workers=1", "--set", "eval_interval=0"])
    assert result.exit_code == 0, result.output
    assert ", 1 environment worker, seeds 0, 1, 4 steps each" in result.stderr
