"""Training in a vectorised simulator that keeps its own state: rollouts, replay, populations and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.seeds.sweep import train_seeds

MODULE = """
import sys
sys.path.insert(0, "{examples}")
from own_simulator import Carts


class WithoutState(Carts):
    def state(self):
        return None
"""
OPTIONS = {
    "ppo": {"num_steps": 16, "batch_size": 16, "hidden_sizes": [8]},
    "sac": {"learning_starts": 64, "batch_size": 16, "hidden_sizes": [8], "collect_steps": 4},
}


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    examples = Path(__file__).resolve().parents[2] / "examples"
    (tmp_path / "my_simulators.py").write_text(MODULE.format(examples=examples))
    monkeypatch.syspath_prepend(tmp_path)


def config(tmp_path: Path, folder: str, algo: str, simulator: str = "Carts", **changes: Any) -> Any:
    values = {"algo": algo, "env_id": f"my_simulators:{simulator}", "env_backend": "device", "num_envs": 4, "log": (),
              "total_timesteps": 512, "eval_interval": 0, "checkpoint_interval": 256, "eval_episodes": 1,
              "algo_kwargs": OPTIONS[algo], "output_dir": str(tmp_path / folder)}  # fmt: skip
    return parse_config({**values, **changes})


def weights(run: Path) -> dict[str, bytes]:
    last = max(run.glob("checkpoints/step_*"))
    return {file.name: file.read_bytes() for file in last.rglob("*") if file.suffix == ".safetensors"}


@pytest.mark.parametrize("algo", OPTIONS)
def test_a_simulator_with_state_resumes_exactly(tmp_path, algo):
    whole = run_training(config(tmp_path, "whole", algo))
    half = run_training(config(tmp_path, "half", algo, total_timesteps=256))
    resumed = resume_run(half.run_dir, steps=512, trust=["my_simulators"])
    assert weights(whole.run_dir) == weights(resumed.run_dir) != {}


def test_a_simulator_without_state_resumes_with_new_episodes_and_a_warning(tmp_path, capsys):
    half = run_training(config(tmp_path, "half", "sac", "WithoutState", total_timesteps=256))
    resumed = resume_run(half.run_dir, steps=512, trust=["my_simulators"])
    assert resumed.steps == 512
    assert "WithoutState has no state() to save, so its environments start new episodes" in capsys.readouterr().err


def test_an_evaluation_plays_one_environment_of_the_simulator(tmp_path):
    result = run_training(config(tmp_path, "run", "ppo", eval_interval=512))
    assert result.evaluation is not None
    assert result.evaluation["lengths"][0] <= 100


def test_several_seeds_train_as_a_population(tmp_path):
    results = train_seeds([config(tmp_path, f"seed_{seed}", "sac", seed=seed) for seed in (0, 1)])
    assert [result.steps for result in results] == [512, 512]
    assert weights(results[0].run_dir) != weights(results[1].run_dir)
