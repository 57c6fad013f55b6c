"""`save`: copies that are whole or absent, and directories that it must not replace."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import PPO

TINY: dict[str, Any] = {"num_envs": 2, "num_steps": 8, "batch_size": 8, "eval_interval": 0, "hidden_sizes": [8]}
OBS = np.random.default_rng(0).normal(size=(20, 4))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> list[PPO]:
    folder = tmp_path_factory.mktemp("runs")
    runs = [PPO("CartPole-v1", seed=seed, output_dir=str(folder / str(seed)), **TINY) for seed in (0, 1)]
    return [run.learn(total_timesteps=16) for run in runs]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_script_that_saves_its_agent_can_run_again(agents: list[PPO], tmp_path: Path) -> None:
    saved = agents[0].save(tmp_path / "new" / "agent")
    before = contents(saved)
    assert agents[0].save(saved) == saved
    assert contents(saved) == before == contents(agents[0].agent.path)
    assert [each.name for each in saved.parent.iterdir()] == ["agent"]


def test_another_agent_is_replaced_only_if_asked(agents: list[PPO], tmp_path: Path) -> None:
    saved = agents[0].save(tmp_path / "agent")
    with pytest.raises(FileExistsError, match=r"holds another agent.*replace it with overwrite=True"):
        agents[1].save(saved)
    assert contents(saved) == contents(agents[0].agent.path)
    agents[1].save(saved, overwrite=True)
    assert contents(saved) == contents(agents[1].agent.path)
    assert (PPO.load(saved).predict(OBS) == agents[1].predict(OBS)).all()


def test_a_directory_that_is_no_saved_agent_is_never_replaced(agents: list[PPO], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    for name in ("notes", "file"):
        with pytest.raises(FileExistsError, match="is not a saved agent"):
            agents[0].save(tmp_path / name, overwrite=True)
    with pytest.raises(FileExistsError, match="is a checkpoint of a run"):
        agents[0].save(agents[1].agent.path, overwrite=True)


def test_a_copy_that_fails_leaves_the_saved_agent_and_no_other_file(
    agents: list[PPO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = agents[0].save(tmp_path / "agent")

    def full(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "state.json").touch()
        raise OSError("no space left")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="no space left"):
        agents[1].save(saved, overwrite=True)
    assert contents(saved) == contents(agents[0].agent.path)
    assert [each.name for each in tmp_path.iterdir()] == ["agent"]
