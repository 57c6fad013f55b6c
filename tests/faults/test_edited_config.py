"""config.yaml edited by hand: what a run may change, what it refuses, and files that are not plain YAML."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rl_training.cli.app import app
from rl_training.experiment.config.differences import MAY_CHANGE
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep

SAC: dict[str, Any] = {
    "algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 40, "num_envs": 2, "eval_interval": 0,
    "algo_kwargs": {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 20},
}  # fmt: skip
LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'ha'}]\n" for n in range(12))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of SAC stopped at step 30 of 40."""
    return stopped_run(SAC, tmp_path_factory.mktemp("stopped") / "run")


def stopped_run(values: dict[str, Any], directory: Path) -> Path:
    result = run_training(parse_config({**values, "output_dir": str(directory)}), callbacks=[StopAtStep(30)])
    assert result.status == "stopped"
    return directory


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))


def files_of(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gamma: 0.99", "gamma: 0.5", "algo_kwargs.gamma was 0.99 and is now 0.5"),
        ("env_id: Pendulum-v1", "env_id: NoSuchEnv-v0", "env_id was 'Pendulum-v1' and is now 'NoSuchEnv-v0'"),
        ("seed: 0", "seed: 7", "seed was 0 and is now 7"),
        ("device: auto", "device: cpu", "device was 'auto' and is now 'cpu'"),
        ("total_timesteps: 40", "total_timesteps: 80", "--steps N` changes the number of steps"),
    ],
)
def test_an_edit_that_changes_training_is_refused_with_key_and_values(run, old, new, message):
    edit(run, old, new)
    before = files_of(run)
    result = CliRunner().invoke(app, ["resume", str(run)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"{run / 'config.yaml'} was edited after checkpoint step_000000030: " in result.stderr
    assert message in result.stderr
    assert files_of(run) == before


def test_train_compares_an_edited_file_with_the_checkpoint_too(run):
    edit(run, "gamma: 0.99", "gamma: 0.5")
    edited = {**SAC, "algo_kwargs": {**SAC["algo_kwargs"], "gamma": 0.5}, "output_dir": str(run)}
    with pytest.raises(ConfigError, match=r"algo_kwargs\.gamma was 0\.99 and is now 0\.5"):
        run_training(parse_config(edited))


def test_an_edit_of_a_finished_run_is_refused(run):
    assert resume_run(run).status == "finished"
    edit(run, "gamma: 0.99", "gamma: 0.5")
    with pytest.raises(ConfigError, match="was edited after checkpoint step_000000040"):
        resume_run(run)


@pytest.mark.usefixtures("forked_workers")
def test_intervals_and_workers_may_change_and_training_stays_exact(run, tmp_path):
    edit(run, "log_interval: null", "log_interval: 1")
    edit(run, "env_workers: auto", "env_workers: 2")
    edit(run, "checkpoint_interval: null", "checkpoint_interval: 3")
    edit(run, "eval_max_steps: 1000000", "eval_max_steps: 500")
    said: list[str] = []
    assert resume_run(run, warn=said.append).status == "finished"
    assert said == [
        "config.yaml was edited after checkpoint step_000000030: env_workers was 'auto' and is now 2, eval_max_steps "
        "was 1000000 and is now 500, log_interval was None and is now 1, checkpoint_interval was None and is now 3; "
        "the run continues with the new values"
    ]
    changes = {"log_interval": 1, "env_workers": 1, "output_dir": str(tmp_path / "whole")}
    whole = run_training(parse_config({**SAC, **changes}))
    assert not [difference for difference in compare_runs(run, whole.run_dir) if "metrics.jsonl" not in difference]


def test_a_change_of_threads_is_used_recorded_and_reported(run):
    edit(run, "threads: null", "threads: 2")
    said: list[str] = []
    resume_run(run, steps=35, warn=said.append)
    assert said[1] == "resume is approximate, not exact: threads was 1, is 2"
    assert json.loads((run / "run.json").read_text())["choices"]["threads"] == 2
    said.clear()
    resume_run(run, warn=said.append)
    assert said == []


def test_keys_that_may_change_are_keys_of_a_config():
    assert set(MAY_CHANGE) <= TrainConfig.model_fields.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, "anchors and aliases are not allowed, line 1"),
        ("algo: sac\nalgo: dqn\n", "'algo' is given twice, line 1 and after"),
        ("algo: sac\nenv_id: [\n", "not YAML: "),
        ("algo: !!python/name:os.system\n", "tags are not allowed, line 1"),
        ("", "the file is empty; write one key a line, such as algo: ppo"),
        ("just words", "a config must be a mapping, got 'just words'"),
        ("algo: sac\nenv_id: Pendulum-v1\nseed: many\n", "seed: must be a valid integer, got 'many'"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}".encode("latin-1"), "not a text file in UTF-8"),
    ],
)
@pytest.mark.parametrize("command", ["resume", "train"])
def test_a_file_that_is_not_a_plain_config_is_refused_in_one_sentence_with_its_name(run, command, text, message):
    (run / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    arguments = ["resume", str(run)] if command == "resume" else ["train", "sac", "Pendulum-v1", "--output", str(run)]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith(f"error: {run / 'config.yaml'}: {message}")
