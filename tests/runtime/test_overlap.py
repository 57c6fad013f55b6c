"""Updates that run while the environments step: their order, resume, and the option."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rl_training.experiment.agent import find_checkpoint
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.machine import choose
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState


def config(folder: Any, seed: int = 0, **changes: Any) -> TrainConfig:
    small = {"batch_size": 16, "hidden_sizes": [8], "learning_starts": 20}
    run = {
        "algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 80, "eval_interval": 0, "algo_kwargs": small,
        "overlap_updates": "on", "checkpoint_interval": 30, "device": "cpu",
    }  # fmt: skip
    return parse_config({**run, "seed": seed, "output_dir": str(folder), **changes})


class Sizes(Callback):
    """Records the transitions that each update can sample."""

    def __init__(self) -> None:
        self.stored: list[int] = []

    def on_update_end(self, state: TrainerState, result: Any) -> None:
        self.stored.append(len(state.lane.replay_parts()["replay"]))


def weights(folder: Any) -> dict[str, torch.Tensor]:
    return load_file(find_checkpoint(folder).path / "learner.safetensors")


def assert_equal(first: Any, second: Any) -> None:
    before, after = weights(first), weights(second)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("switch", "first"), [("on", 20), ("off", 21)])
def test_an_overlapping_update_comes_before_its_step_is_stored(tmp_path, switch, first):
    sizes = Sizes()
    result = run_training(config(tmp_path, overlap_updates=switch), callbacks=[sizes])
    assert result.updates == 60
    assert sizes.stored == list(range(first, first + 60))


def test_only_the_last_step_of_a_collect_runs_updates(tmp_path):
    options = {
        "batch_size": 16,
        "hidden_sizes": [8],
        "learning_starts": 20,
        "collect_steps": 4,
        "updates_per_collect": 2,
    }
    sizes = Sizes()
    run_training(config(tmp_path, algo_kwargs=options), callbacks=[sizes])
    assert sizes.stored == list(range(23, 80, 4))


def test_an_update_needs_a_stored_transition(tmp_path):
    options = {"batch_size": 16, "hidden_sizes": [8], "learning_starts": 0}
    sizes = Sizes()
    run_training(config(tmp_path, algo_kwargs=options), callbacks=[sizes])
    assert sizes.stored == list(range(1, 80))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("forked_workers")
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path, workers):
    run_training(config(tmp_path / "whole"))
    run_training(config(tmp_path / "cut", env_workers=workers), callbacks=StopAtStep(45))
    resume_run(tmp_path / "cut")
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_a_population_overlaps_and_resumes(tmp_path):
    whole = [config(tmp_path / f"whole{seed}", seed) for seed in range(2)]
    cut = [config(tmp_path / f"cut{seed}", seed) for seed in range(2)]
    run_population(whole)
    run_population(cut, callbacks=StopAtStep(45))
    run_population(cut)
    for seed in range(2):
        assert_equal(tmp_path / f"whole{seed}", tmp_path / f"cut{seed}")


@pytest.mark.parametrize(("device", "switch", "overlap"), [
    ("cpu", "auto", False), ("cpu", "on", True), ("cuda", "auto", True), ("cuda", "off", False),
])  # fmt: skip
def test_auto_overlaps_on_a_gpu(monkeypatch, tmp_path, device, switch, overlap):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose(config(tmp_path, device=device, overlap_updates=switch)).overlap is overlap


def test_a_lane_without_a_replay_buffer_refuses(tmp_path):
    with pytest.raises(ValueError, match="overlap_updates: ppo in gymnasium environments cannot update"):
        choose(parse_config({"algo": "ppo", "env_id": "CartPole-v1", "overlap_updates": "on"}))
