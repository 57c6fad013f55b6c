"""Training on Atari: frames are stored once, and a run resumes in the middle of a game."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rl_training.cli import app
from rl_training.data import FrameReplayBuffer
from rl_training.envs.pools.pool import EnvPool, Transition
from rl_training.experiment.config.packaged import load_config
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.engine import Callback

pytest.importorskip("ale_py", reason="Atari needs the extra atari")
BREAKOUT = "ALE/Breakout-v5"
FRAME = 84 * 84  # bytes


def played(pool: EnvPool, actions: np.ndarray) -> list[Transition]:
    return [pool.step(row) for row in actions]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("forked_workers")
def test_a_snapshot_restores_a_game_across_lives_and_games(workers):
    """A life of Breakout lasts about 25 steps, and a game has five."""
    actions = np.random.default_rng(0).integers(4, size=(200, 2))
    with EnvPool(BREAKOUT, 2, training=True, workers=workers) as pool, EnvPool(BREAKOUT, 2, training=True) as fresh:
        pool.reset()
        played(pool, actions[:60])
        state = pool.snapshot()
        uninterrupted = played(pool, actions[60:])
        assert fresh.restore(state) == []
        for restored, expected in zip(played(fresh, actions[60:]), uninterrupted, strict=True):
            for name in ("next_obs", "rewards", "terminated", "truncated", "obs"):
                np.testing.assert_array_equal(getattr(restored, name), getattr(expected, name))
            assert restored.finished == expected.finished
        assert sum(len(step.finished) for step in uninterrupted) >= 8


def test_a_damaged_action_history_is_reported_and_a_new_game_starts():
    with EnvPool(BREAKOUT, training=True) as pool:
        pool.reset()
        state = pool.snapshot()
        state["envs"]["0"]["tape"] = np.array([0, 200], np.uint8)
        (reason,) = pool.restore(state)
        assert reason.endswith("its game has 4 actions, but action 200 was saved")
        assert pool.snapshot()["envs"]["0"]["episode"] == 1


def test_an_action_history_with_another_final_state_is_reported():
    with EnvPool(BREAKOUT, training=True) as pool:
        pool.reset()
        played(pool, np.full((5, 1), 2))
        state = pool.snapshot()
        state["envs"]["0"]["tape"] = state["envs"]["0"]["tape"][:-8]
        (reason,) = pool.restore(state)
        assert reason.endswith("its replayed game reached a different state")


def config(folder: Path) -> TrainConfig:
    """Breakout's packaged config, made small: a few lives, and more transitions than the replay buffer holds."""
    values = load_config("dqn/breakout_atari")
    small = {"buffer_size": 60, "learning_starts": 40, "batch_size": 4, "hidden_sizes": [8], "target_interval": 3}
    run = {"total_timesteps": 100, "eval_interval": 0, "checkpoint_interval": 20, "compile": "off", "device": "cpu"}
    return parse_config(
        {**values, **run, "algo_kwargs": {**values["algo_kwargs"], **small}, "output_dir": str(folder)}
    )  # fmt: skip


class StopAt(Callback):
    interval = 68

    def on_step_end(self, state: Any) -> None:
        if state.global_step >= self.interval:
            state.request_stop("the test asked")


def test_a_run_resumes_byte_for_byte_in_the_middle_of_a_game(tmp_path):
    whole = run_training(config(tmp_path / "whole"))
    halved = run_training(config(tmp_path / "halved"), callbacks=[StopAt()])
    assert halved.status == "stopped"
    resume_run(halved.run_dir)
    assert compare_runs(whole.run_dir, halved.run_dir) == []


def test_frames_are_stored_once_if_lives_do_not_end_episodes(tmp_path):
    whole_games = {"env_kwargs": {"terminal_on_life_loss": False, "repeat_action_probability": 0.0}}
    result = run_training(config(tmp_path / "run").model_copy(update=whole_games))
    assert (result.status, result.steps) == ("finished", 100)  # some three lives


def test_the_command_line_trains_the_packaged_config_and_stores_each_frame_once(tmp_path):
    small = {
        "buffer_size": 200, "learning_starts": 30, "eval_episodes": 1, "eval_interval": 40, "checkpoint_interval": 40,
        "compile": "off",
    }  # fmt: skip
    changes = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    command = ["train", "dqn/breakout_atari", "--steps", "40", *changes, "--output", str(tmp_path / "run"), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["steps"], report["evaluation"]["episodes"]) == (40, 1)
    stored = (Path(report["checkpoint"]) / "frames-000000.safetensors").stat().st_size
    assert 40 * FRAME < stored < 45 * FRAME  # one per step, and one more per life


def test_the_replay_buffer_returns_real_frames_unchanged():
    with EnvPool(BREAKOUT, training=True) as pool:
        replay = FrameReplayBuffer(100, pool.spec)
        obs, rows = pool.reset(), []
        for action in np.random.default_rng(0).integers(4, size=(60, 1)):
            step = pool.step(action)
            columns = (obs, action, step.rewards, step.next_obs, step.terminated, step.truncated)
            names = ("obs", "actions", "rewards", "next_obs", "dones", "truncated")
            rows.append({name: torch.as_tensor(column) for name, column in zip(names, columns, strict=True)})
            rows[-1] |= {name: rows[-1][name].float() for name in ("dones", "truncated")}
            replay.add(rows[-1])
            obs = step.obs
        assert sum(float(row["dones"]) for row in rows) >= 1  # a life was lost
        for name in ("obs", "next_obs"):
            stored = replay.frames.stacks(replay.columns[name][:60])
            assert torch.equal(stored, torch.cat([row[name] for row in rows]))
        assert replay.frames.frames.nbytes == 100 * FRAME
