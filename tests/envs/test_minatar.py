"""The MinAtar environments of the benchmarks: small images, exact resume, training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_training.envs.pools.pool import EnvPool
from rl_training.experiment.config.train_config import load_config, parse_config
from rl_training.experiment.run import run_training

pytest.importorskip("minatar", reason="pip install --no-deps MinAtar")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BREAKOUT = "minatar_games:MinAtar/Breakout-v0"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_observations_are_images_with_channels_first():
    with EnvPool(BREAKOUT) as pool:
        obs = pool.reset()
    assert (pool.spec.obs_shape, pool.spec.obs_dtype, pool.spec.action_dim) == ((4, 10, 10), "uint8", 6)
    # Paddle, ball, its trail, bricks: three full rows of ten.
    assert [int(channel.sum()) // 255 for channel in obs[0]] == [1, 1, 1, 30]
    assert np.unique(obs).tolist() == [0, 255]


def test_a_game_is_restored_exactly_although_minatar_keeps_the_last_action():
    actions = np.random.default_rng(0).integers(6, size=(80, 1))
    with EnvPool(BREAKOUT) as pool, EnvPool(BREAKOUT) as fresh:
        pool.reset()
        for row in actions[:40]:
            pool.step(row)
        assert fresh.restore(pool.snapshot()) == []
        for row in actions[40:]:
            np.testing.assert_array_equal(pool.step(row).obs, fresh.step(row).obs)


@pytest.mark.parametrize(("name", "steps"), [
    ("dqn", 64), ("qr_dqn", 64), ("rainbow", 64), pytest.param("dreamer", 160, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_benchmark_settings_train(name, steps, tmp_path):
    values = load_config(str(BENCHMARKS / "plans" / "minatar" / f"{name}_breakout.yaml"))
    run = {"total_timesteps": steps, "eval_interval": 0, "output_dir": str(tmp_path), "compile": "off", "device": "cpu"}
    result = run_training(
        parse_config({**values, **run, "algo_kwargs": {**values["algo_kwargs"], "learning_starts": 40}})
    )  # fmt: skip
    assert (result.status, result.steps) == ("finished", steps)
    assert result.updates > 0
