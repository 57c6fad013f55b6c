"""`save`: copies that are whole or absent, and directories that it must not replace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import PPO
from rl_training.experiment.config.train_config import ConfigError
from rl_training.experiment.verify import verify_run

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


def test_a_rename_that_fails_leaves_the_saved_agent(
    agents: list[PPO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, rename = agents[0].save(tmp_path / "agent"), os.replace
    before = contents(saved)

    def refuse_state(source: Path, target: Path) -> None:
        if target == saved and contents(source) != before:
            raise PermissionError("in use")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_state)
    with pytest.raises(PermissionError, match="in use"):
        agents[1].save(saved, overwrite=True)
    assert contents(saved) == before
    assert [each.name for each in tmp_path.iterdir()] == ["agent"]


def test_a_link_stays_a_link(agents: list[PPO], tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("agents/first", target_is_directory=True)
    for agent in agents:
        agent.save(tmp_path / "latest", overwrite=True)
        assert contents(tmp_path / "agents" / "first") == contents(agent.agent.path)
    assert (tmp_path / "latest").is_symlink()
    assert sorted(each.name for each in tmp_path.rglob("*") if each.is_dir() and not each.is_symlink()) == [
        "agents", "first"
    ]  # fmt: skip


def test_a_damaged_copy_is_replaced(agents: list[PPO], tmp_path: Path) -> None:
    saved = agents[0].save(tmp_path / "agent")
    (saved / "learner.safetensors").write_bytes(b"")
    agents[0].save(saved)
    assert contents(saved) == contents(agents[0].agent.path)


def test_a_folder_named_checkpoints_outside_a_run_may_hold_saved_agents(agents: list[PPO], tmp_path: Path) -> None:
    saved = agents[0].save(tmp_path / "checkpoints" / "best")
    agents[1].save(saved, overwrite=True)
    assert contents(saved) == contents(agents[1].agent.path)


def test_an_agent_whose_files_another_one_has_replaced_is_neither_saved_nor_trained(
    agents: list[PPO], tmp_path: Path
) -> None:
    loaded = PPO.load(agents[0].save(tmp_path / "agent"))
    agents[1].save(tmp_path / "agent", overwrite=True)
    with pytest.raises(ValueError, match="agent was replaced after this agent was loaded; load it again"):
        loaded.save(tmp_path / "copy")
    with pytest.raises(ValueError, match="agent was replaced after this agent was loaded; load it again"):
        loaded.learn(total_timesteps=16)
    assert [each.name for each in tmp_path.iterdir()] == ["agent"]


def test_an_agent_whose_files_are_missing_is_not_saved(agents: list[PPO], tmp_path: Path) -> None:
    loaded = PPO.load(agents[0].save(tmp_path / "agent"))
    shutil.rmtree(tmp_path / "agent")
    (tmp_path / "new").mkdir()
    with pytest.raises(ValueError, match=r"no checkpoint at .*agent: the directory does not exist"):
        loaded.save(tmp_path / "new")


def test_a_folder_that_cannot_be_written_is_named(
    agents: list[PPO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match=r"Permission denied: '.*/agent'"):
        agents[0].save(tmp_path / "agent")


def test_a_run_is_verified_only_from_the_checkpoint_that_it_started_from(
    agents: list[PPO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agents[0].save("agent")
    PPO.load("agent", output_dir="new").learn(total_timesteps=16).save("agent", overwrite=True)
    with pytest.raises(ConfigError, match=r"new started from step 16 of .*agent, which holds step 32 now; restore it"):
        verify_run(Path("new"))
