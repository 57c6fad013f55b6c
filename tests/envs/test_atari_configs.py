"""Atari configs of the DQN family: the papers' settings, and each of them trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.experiment.config.packaged import load_config
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import run_training

pytest.importorskip("ale_py", reason="Atari needs the extra atari")
GAMES = ("pong", "breakout")
# Learning rate, epsilon of Adam, steps between copies to the target network, and steps before the first update.
PAPERS = {
    "c51": (2.5e-4, 0.01 / 32, 10_000, 50_000),
    "qr_dqn": (5e-5, 0.01 / 32, 10_000, 50_000),
    "iqn": (5e-5, 0.01 / 32, 10_000, 50_000),
    "fqf": (5e-5, 0.01 / 32, 10_000, 50_000),
    "rainbow": (6.25e-5, 1.5e-4, 8_000, 20_000),
}
SIZES = {"c51": 51, "qr_dqn": 200, "iqn": 64, "fqf": 32, "rainbow": 51}  # atoms or quantiles


def options(algo: str, game: str) -> dict[str, Any]:
    """All options of the algorithm, with those that the config leaves at their defaults."""
    return parse_config(load_config(f"{algo}/{game}_atari")).algo_kwargs


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("algo", PAPERS)
def test_the_config_has_the_settings_of_the_paper(algo, game):
    chosen = options(algo, game)
    target_steps = chosen["target_interval"] * chosen["collect_steps"] / chosen["updates_per_collect"]
    found = (chosen["learning_rate"], chosen["adam_eps"], target_steps, chosen["learning_starts"])
    assert found == pytest.approx(PAPERS[algo])
    shared = [chosen[name] for name in ("batch_size", "buffer_size", "collect_steps", "tau", "gamma")]
    assert shared == [32, 1_000_000, 4, 1.0, 0.99]
    assert (chosen.get("num_atoms") or chosen["num_quantiles"]) == SIZES[algo]


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("algo", ["dqn", "c51", "qr_dqn", "iqn", "fqf"])
def test_epsilon_falls_to_a_hundredth_over_a_million_steps(algo, game):
    chosen = options(algo, game)
    steps = chosen["exploration_fraction"] * load_config(f"{algo}/{game}_atari")["total_timesteps"]
    assert (chosen["epsilon_start"], chosen["epsilon_end"], steps) == (1.0, 0.01, pytest.approx(1_000_000))


def test_rainbow_explores_with_noisy_layers_and_fqf_moves_its_fractions_slowly():
    assert options("rainbow", "pong")["noisy"]
    fqf = options("fqf", "pong")
    assert (fqf["fraction_learning_rate"], fqf["entropy_coefficient"]) == (2.5e-9, 0)


@pytest.mark.parametrize("game", [pytest.param("pong", marks=pytest.mark.slow), "breakout"])
@pytest.mark.parametrize("algo", ["dqn", *PAPERS])
def test_the_config_trains(algo, game, tmp_path: Path):
    config = load_config(f"{algo}/{game}_atari")
    small = {"learning_starts": 8, "buffer_size": 100, "batch_size": 4, "target_interval": 2, "hidden_sizes": [16]}
    config["algo_kwargs"] |= small
    short = {"total_timesteps": 24, "eval_interval": 0, "checkpoint_interval": 24, "compile": "off", "device": "cpu"}
    result = run_training(parse_config({**config, **short, "output_dir": str(tmp_path / "run")}))
    assert result.status == "finished"
    assert (result.steps, result.updates) == (24, 4)
