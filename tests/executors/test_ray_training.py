"""Training on a Ray node that shares no folder gives the same files as on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SHORT = ["--steps", "300", "--set", "hidden_sizes=[8]", "--set", "eval_interval=0", "--set", "checkpoint_interval=100"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [["bench", "--algos", "dqn", "--envs", "CartPole-v1", "--episodes", "2", "--seeds", "0,1"],
     ["train", "ppo", "CartPole-v1", "--seeds", "0,1"]],
    ids=["bench", "train"],
)  # fmt: skip
def test_training_on_a_node_without_the_folder_gives_the_same_files(ray_nodes, tmp_path, command):
    if ray_nodes.reason:
        pytest.skip(ray_nodes.reason)
    copied = ray_nodes.hidden / command[0]
    words = [sys.executable, "-m", "rl_training.cli", *command, *SHORT, "--output"]
    elsewhere = ["--executor", "ray", "--address", ray_nodes.address, "--cpus", "2"]
    for more in ([str(copied), *elsewhere], [str(tmp_path / "here")]):
        ended = subprocess.run(
            [*words, *more], env={**os.environ, **ray_nodes.variables}, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
    files = {path.relative_to(copied): path.read_bytes() for path in copied.rglob("step_*/*.safetensors")}
    here = tmp_path / "here"
    assert files == {path.relative_to(here): path.read_bytes() for path in here.rglob("step_*/*.safetensors")} != {}
    assert list(Path(tempfile.gettempdir()).glob("rl-training-work-*")) == []
