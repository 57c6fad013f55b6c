"""The command line finds environments and wrappers in the current folder, which comes last on the path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from typer.testing import CliRunner

from rl_training import modules
from rl_training.cli import app

MODULE = """
import json, os, sys
import gymnasium as gym
import numpy as np


class Grid(gym.Env):
    observation_space = gym.spaces.Box(0, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=4):
        self.size = size
        with open("created.jsonl", "a") as file:
            file.write(json.dumps({"process": os.getpid(), "path": sys.path}) + "\\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.time = 0, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.position, self.time = max(0, self.position + (1 if action else -1)), self.time + 1
        ended = self.position == self.size
        return np.array([self.position], np.float32), float(ended), ended, self.time == 20, {}


class Half(gym.RewardWrapper):
    def reward(self, reward):
        return reward / 2


gym.register("Grid-v0", entry_point=Grid)
"""
SMALL = ["--steps", "32", "--quiet", "--set", "num_steps=8", "--set", "batch_size=8", "--set", "eval_episodes=2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_grids.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_grids", None)
    gym.registry.pop("Grid-v0", None)


def invoke(*args: str) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_installed_command_finds_modules_beside_it(folder):
    (folder / "json.py").write_text("raise AssertionError('imported instead of the standard library')")
    command = [str(Path(sys.executable).with_name("rl-training")), "train", "ppo", "own_grids:Grid-v0", *SMALL]
    options = ["--set", "num_envs=2", "--set", "env_workers=1", "--set", "env_wrappers=own_grids:Half"]
    source = str(Path(__file__).resolve().parents[2] / "src")
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    created = [json.loads(line) for line in (folder / "created.jsonl").read_text().splitlines()]
    assert len({each["process"] for each in created}) == 2  # the command and its worker
    assert all(each["path"].index(str(folder)) == len(each["path"]) - 1 for each in created)
    assert (folder / "runs" / "ppo-own_grids-Grid-v0-s0" / "result.json").exists()


def test_a_class_is_trained_evaluated_resumed_and_collected_with_its_wrappers(folder):
    wrappers = "env_wrappers=[own_grids:Half, {wrapper: gymnasium.wrappers:TimeLimit, max_episode_steps: 5}]"
    invoke("train", "ppo", "own_grids:Grid", *SMALL, "--set", wrappers, "--set", "env_kwargs.size=2")
    run = "runs/ppo-own_grids-Grid-s0"
    played = json.loads(invoke("evaluate", run, "--episodes", "3", "--json"))
    assert set(played["returns"]) <= {0.0, 0.5}
    assert max(played["lengths"]) <= 5
    assert json.loads(invoke("resume", run, "--steps", "48", "--json"))["steps"] == 48
    assert "byte-identical" in invoke("verify", run)
    invoke("data", "collect", run, "--steps", "20", "--out", "rows.npz")
    modules._approved.clear()  # as in a new process
    assert "usable for training" in invoke("data", "check", "rows.npz", "--env", "own_grids:Grid")
    source = json.loads((folder / run / "run.json").read_text())["env_source"]
    assert source["file"] == str(folder / "own_grids.py")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["absent:Grid-v0"], "env_id 'absent:Grid-v0': there is no module 'absent'; it is neither installed nor in"),
        (["own_grids:Gird-v0"], "env_id 'own_grids:Gird-v0' not found. Did you mean 'own_grids:Grid-v0'?"),
        (["own_grids:Gird"], "env_id 'own_grids:Gird' not found."),
        (["own_grids:np"], "env_id 'own_grids:np' must be a class or function that creates an environment, got"),
        (["own_grids:Half"], "own_grids:Half could not be created: "),
        (["own_grids:Grid", "--set", "env_kwargs.sise=3"], "own_grids:Grid could not be created: "),
        (
            ["grids/own_grids.py:Grid"],
            "env_id 'grids/own_grids.py:Grid' must name a module and not a file; "
            "write it without .py: 'own_grids:Grid', in the folder grids",
        ),
        (["own_grids.py:Grid"], "env_id 'own_grids.py:Grid' must name a module and not a file; write it without .py: "),
        (["CartPole-v1", "--set", "env_wrappers=own_grids:Huge"], "env_wrappers 'own_grids:Huge' not found"),
        (["CartPole-v1", "--set", "env_wrappers=math:sqrt"], "env_wrappers: math:sqrt could not wrap the environment"),
        (
            ["CartPole-v1", "--set", "env_wrappers={wrapper: gymnasium.wrappers:TimeLimit, max_episode_step: 5}"],
            "env_wrappers: gymnasium.wrappers:TimeLimit could not wrap the environment: TypeError: "
            "TimeLimit.__init__() got an unexpected keyword argument "
            "'max_episode_step'; did you mean 'max_episode_steps'?",
        ),
        (["CartPole-v1", "--set", "env_wrappers=builtins:id"], "env_wrappers: builtins:id must return an environment"),
        (["CartPole-v1", "--set", "env_wrappers=own_grids"], "env_wrappers: must be module:Name or {wrapper: "),
    ],
)
def test_mistakes_are_one_sentence(folder, args, sentence):
    result = CliRunner().invoke(app, ["train", "ppo", *args, *SMALL, "--output", "run"])
    assert result.exit_code == 2
    assert f"error: {sentence}" in result.stderr
    assert "Traceback" not in result.output
    assert not (folder / "run").exists()
