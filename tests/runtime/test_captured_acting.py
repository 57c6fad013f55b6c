"""Acting on a GPU in environments of the host: equal to eager acting, exact in resume, on every kind of buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training.algorithms.sac import SACAlgorithm
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.lanes import captured_acting
from rl_training.runtime.lanes.acting import Actor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SMALL: dict[str, Any] = {"hidden_sizes": [8], "batch_size": 16, "learning_starts": 32}
NOISE = {"action_noise": "ornstein_uhlenbeck"}
PIXELS = {**SMALL, "stacked_frames": True, "buffer_size": 200}
RUNS = {
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": SMALL},
    "td3": {"algo": "td3", "env_id": "Pendulum-v1", "algo_kwargs": {**SMALL, **NOISE}},
    "simba": {
        "algo": "sac",
        "env_id": "Pendulum-v1",
        "algo_kwargs": {**SMALL, "network": {"kind": "simba", "critic_hidden_sizes": [8]}, "weight_decay": 0.01},
    },
    "simba_v2": {
        "algo": "sac",
        "env_id": "Pendulum-v1",
        "algo_kwargs": {**SMALL, "network": {"kind": "simba_v2", "critic_hidden_sizes": [8]}},
    },
    "dqn": {"algo": "dqn", "env_id": "CartPole-v1", "algo_kwargs": {**SMALL, "n_step": 3, "collect_steps": 4}},
    "rainbow": {"algo": "rainbow", "env_id": "CartPole-v1", "algo_kwargs": SMALL},
    "ppo": {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "algo_kwargs": {"hidden_sizes": [8], "batch_size": 16, "num_steps": 16},
    },
    "hindsight": {"algo": "sac", "env_id": "PointGoal-v0", "algo_kwargs": {**SMALL, "hindsight": "future"}},
    "bits": {
        "algo": "dqn",
        "env_id": "BitFlip-v0",
        "algo_kwargs": {**SMALL, "hindsight": "future", "prioritized": True, "buffer_size": 90},
    },
    "frames": {"algo": "dqn", "env_id": "ALE/Pong-v5", "algo_kwargs": PIXELS},
}


def config(folder: Path, name: str, **changes: Any) -> Any:
    values = {"total_timesteps": 192, "num_envs": 2, "device": "cuda", "log": (), "eval_interval": 0,
              "checkpoint_interval": 64, "output_dir": str(folder), "compile": "off"}  # fmt: skip
    return parse_config({**values, **RUNS[name], **changes})


def weights(run: Path) -> dict[str, bytes]:
    last = max(run.glob("checkpoints/step_*"))
    return {file.name: file.read_bytes() for file in last.rglob("*") if file.suffix == ".safetensors"}


def require(name: str) -> None:
    if name == "frames":
        pytest.importorskip("ale_py")


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path, name):
    require(name)
    run_training(config(tmp_path / "whole", name))
    run_training(config(tmp_path / "cut", name), callbacks=StopAtStep(100))
    resume_run(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut") != {}


@pytest.mark.parametrize("name", RUNS)
def test_captured_acting_trains_like_eager_acting(tmp_path, name, monkeypatch):
    require(name)
    run_training(config(tmp_path / "captured", name, overlap_updates="off" if name != "ppo" else "auto"))
    monkeypatch.setattr(captured_acting, "CapturedActor", Actor)
    run_training(config(tmp_path / "eager", name, overlap_updates="off" if name != "ppo" else "auto"))
    assert weights(tmp_path / "captured") == weights(tmp_path / "eager")


def test_a_population_resumes_exactly(tmp_path):
    for folder, callbacks in (("whole", ()), ("cut", StopAtStep(100)), ("cut", ())):
        run_population(
            [config(tmp_path / folder / str(seed), "sac", seed=seed) for seed in range(3)], callbacks=callbacks
        )
    for seed in range(3):
        assert weights(tmp_path / "whole" / str(seed)) == weights(tmp_path / "cut" / str(seed))


def test_a_policy_that_waits_for_the_gpu_still_acts(tmp_path, monkeypatch):
    act = SACAlgorithm.act

    def waiting(self: Any, obs: Any, *arguments: Any, **options: Any) -> Any:
        assert obs.sum().item() < 1e9
        return act(self, obs, *arguments, **options)

    monkeypatch.setattr(SACAlgorithm, "act", waiting)
    run_training(config(tmp_path / "whole", "sac"))
    run_training(config(tmp_path / "cut", "sac"), callbacks=StopAtStep(100))
    resume_run(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
