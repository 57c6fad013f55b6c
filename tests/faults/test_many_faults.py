"""Faults of environments in large numbers: each is reported, none ends in a finished run, and no process is left."""

from __future__ import annotations

import json
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rl_training.cli import app
from rl_training.experiment.run import run_training

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]
ID = "environments:Faulty-v0"
REPLAY = {"learning_starts": 8, "batch_size": 8, "hidden_sizes": [8]}
ALGORITHMS = {
    "dqn": REPLAY, "c51": REPLAY, "ppo": {"num_steps": 8, "batch_size": 8, "epochs": 1, "hidden_sizes": [8]},
    "sac": REPLAY, "td3": REPLAY,
}  # fmt: skip
CONTINUOUS = ("sac", "td3")


def train(algo: str, output: Path, **settings: object) -> Result:
    """Runs `rl-training train` for 64 steps, with evaluations of two episodes."""
    settings = {
        "eval_interval": 16, "eval_episodes": 2, "log_interval": 8, "env_kwargs.continuous": algo in CONTINUOUS,
        **ALGORITHMS[algo], **settings,
    }  # fmt: skip
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    options = [part for key, text in texts.items() for part in ("--set", f"{key}={text}")]
    return CliRunner().invoke(app, ["train", algo, ID, "--output", str(output), "--steps", "64", "--quiet", *options])


def is_finished(run: Path) -> bool:
    file = run / "result.json"
    return file.exists() and json.loads(file.read_text())["status"] == "finished"


def test_fifty_dead_workers_are_reported_and_counted(tmp_path: Path):
    warnings: list[str] = []
    config = {
        "algo": "ppo", "env_id": ID, "env_kwargs": {"fault": "kill", "at": 10}, "env_workers": 1,
        "max_env_restarts": 60, "total_timesteps": 504, "output_dir": str(tmp_path), "eval_interval": 0,
        "log_interval": 8, "checkpoint_interval": 48, "algo_kwargs": ALGORITHMS["ppo"],
    }  # fmt: skip
    result = run_training(config, warn=warnings.append)  # type: ignore[arg-type]  # parsed there
    assert (result.status, result.steps, result.env_restarts) == ("finished", 504, 50)
    assert json.loads((tmp_path / "result.json").read_text())["env_restarts"] == 50
    assert warnings == [
        "worker 0 (environment 0) ended by SIGKILL; its episodes are truncated and it is restarted "
        f"(restart {number} of at most 60)"
        for number in range(1, 51)
    ]


HANGS = """
import json, sys

if __name__ == "__main__":
    from rl_training.envs.pools import workers
    from rl_training.experiment.run import run_training

    workers.SILENT_SECONDS = 1.0
    run_training(json.loads(sys.argv[1]), warn=lambda warning: print(warning, flush=True))
"""


@pytest.mark.parametrize(
    ("fault", "number", "end"),
    [("hang", 4, signal.SIGKILL), ("locked", 2, signal.SIGKILL), ("hang", 4, signal.SIGTERM)],
)
def test_ten_hung_workers_are_reported_and_end_with_their_parent(
    tmp_path: Path, started: Any, expect_group_ends: Any, fault: str, number: int, end: signal.Signals
):
    config = {
        "algo": "ppo", "env_id": ID, "env_kwargs": {"fault": fault, "at": 20}, "num_envs": number,
        "env_workers": number, "total_timesteps": 10**6, "output_dir": str(tmp_path / "run"), "eval_interval": 0,
        "algo_kwargs": ALGORITHMS["ppo"],
    }  # fmt: skip
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    missing = {f"worker {each} (environment {each}) has not replied for 1 seconds in step\n" for each in range(number)}
    with started(str(script), json.dumps(config)) as run:
        while missing:
            missing.remove(run.stdout.readline())
        run.send_signal(end)
        run.wait(timeout=15)
        expect_group_ends(run.pid)
    assert not is_finished(tmp_path / "run")


def injections() -> list[tuple[str, dict[str, object], int]]:
    """Returns 200 cases: algorithm, options of the environment, workers; each fault comes within 64 steps."""
    rng, values = random.Random(3), ("nan", "inf", "-inf")
    cases: list[tuple[str, dict[str, object], int]] = []
    for number in range(200):
        place = rng.choice(("obs", "reward", "reset"))
        length = rng.choice((1, 4, 40))
        fault = {"fault": f"{rng.choice(values)} {place}", "at": rng.randint(1, 30 if place == "reset" else 64)}
        cases.append(([*ALGORITHMS][number % 5], {**fault, "length": length}, int(number >= 160)))
    return cases


REPORT = re.compile(
    r"error: environment \d returned a NaN or infinite (observation: (nan|-?inf) at \[0\]|reward: (nan|-?inf)) "
    r"\(\S+\.py:\d+\); return finite numbers, or end the episode before them\n"
)


def test_two_hundred_nan_and_infinite_values_end_in_one_error_that_names_the_environment(tmp_path: Path):
    reported, wrong = 0, []
    for number, (algo, kwargs, workers) in enumerate(injections()):
        run = tmp_path / str(number)
        settings = {f"env_kwargs.{key}": value for key, value in kwargs.items()}
        result = train(algo, run, env_workers=workers, **settings)
        if result.exit_code == 1 and re.fullmatch(REPORT, result.stderr) and not is_finished(run):
            reported += 1
        else:
            wrong.append((algo, kwargs, workers, result.exit_code, result.stderr))
    assert (wrong, reported) == ([], 200)


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("rate", [1e20, 1e38])
def test_a_loss_that_becomes_nan_ends_in_one_error(tmp_path: Path, algo: str, rate: float):
    result = train(algo, tmp_path, learning_rate=rate)
    assert result.exit_code == 1
    assert re.fullmatch(
        r"error: (training diverged: .* is|the policy's actions are) NaN or infinite.*\n", result.stderr
    )
    assert not is_finished(tmp_path)
