"""Warnings about an environment whose file was edited after some runs had finished."""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium as gym
import pytest

from rl_training import modules
from rl_training.experiment.bench.plan import parse_plan
from rl_training.experiment.bench.runner import Bench
from rl_training.experiment.manager import ExperimentManager
from rl_training.reporting.comparison import compare

SOURCE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Pole(CartPoleEnv):
    pass

gymnasium.register("Pole-v0", Pole, max_episode_steps=10)
"""
SMALL = {"hidden_sizes": [4], "batch_size": 8}
DQN: dict[str, Any] = {
    "algo": "dqn", "env_id": "edited_pole:Pole-v0", "total_timesteps": 40, "eval_interval": 20, "eval_episodes": 1,
    "algo_kwargs": {**SMALL, "learning_starts": 20},
}  # fmt: skip
PPO = {**DQN, "algo": "ppo", "algo_kwargs": {**SMALL, "num_steps": 16}}
FINISHED = "differs from the file that defined the environment when the finished seeds started; results may differ"


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (file := tmp_path / "edited_pole.py").write_text(SOURCE)
    yield file
    sys.modules.pop("edited_pole", None)
    gym.registry.pop("Pole-v0", None)
    modules._approved.clear()


def sweep(values, seeds):
    ExperimentManager.setup({**values, "output_dir": "runs"}).sweep(seeds)


def lines_about(text):
    return [line for line in text.splitlines() if "edited_pole.py" in line]


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize(("values", "later"), [(DQN, [0, 1, 2, 3]), (DQN, [0, 1, 2]), (PPO, [0, 1, 2, 3])])
def test_seeds_that_are_added_after_an_edit_are_reported(source, capfd, values, later):
    sweep(values, [0, 1])
    assert lines_about(capfd.readouterr().err) == []
    source.write_text(f"{SOURCE}# edited\n")
    sweep(values, later)
    (line,) = lines_about(capfd.readouterr().err)
    assert line.endswith(FINISHED)
    (note,) = [note for note in compare("runs").notes if "edited_pole.py" in note]
    assert note.startswith("edited_pole:Pole-v0: edited_pole.py was edited between runs")


def test_a_seed_that_continues_after_an_edit_is_reported_once(source, capfd):
    sweep(DQN, [0, 1])
    result = json.loads((file := source.parent / "runs" / "seed_1" / "result.json").read_text())
    del result["sha256"], result["env_restarts"]
    file.write_text(json.dumps({**result, "status": "stopped"}))
    source.write_text(f"{SOURCE}# edited\n")
    sweep(DQN, [0, 1])
    assert len(lines_about(capfd.readouterr().err)) == 1


@pytest.mark.usefixtures("forked_jobs")
def test_a_finished_cell_of_a_bench_reports_an_edited_environment(source, capfd):
    options = {**DQN["algo_kwargs"], "eval_interval": 0}
    plan = {"algos": ["dqn"], "envs": [DQN["env_id"]], "seeds": [0, 1], "steps": 40, "episodes": 1, "set": options}
    Bench(parse_plan(plan), "bench").run()
    assert lines_about(capfd.readouterr().err) == []
    source.write_text(f"{SOURCE}# edited\n")
    (bench := Bench(parse_plan(plan), "bench")).run()
    (line,) = lines_about(capfd.readouterr().err)
    assert (bench.status, line.split(": ")[0]) == ("done", bench.cells[0].cell.name)
    assert "when the finished runs started" in line
    stored = json.loads((bench.cells[0].folder / "result.json").read_text())
    assert stored["runs"][0]["env_source"]["module"] == "edited_pole"
