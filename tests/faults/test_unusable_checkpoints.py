"""A run whose checkpoints cannot be used is refused, and nothing in its directory changes."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rl_training
from rl_training.cli.app import app
from rl_training.experiment.config.train_config import parse_config
from rl_training.experiment.run import resume_run, run_population, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.seeds.sweep import train_seeds
from rl_training.experiment.starts import UnusableRunError
from rl_training.experiment.verify import compare_runs
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.engine import Callback
from rl_training.runtime.state import TrainerState

OPTIONS: dict[str, Any] = {"hidden_sizes": [8], "batch_size": 8}
BC: dict[str, Any] = {
    "algo": "bc", "env_id": "Pendulum-v1", "dataset": {"kind": "random", "rows": 60}, "total_timesteps": 40,
    "checkpoint_interval": 10, "eval_interval": 0, "algo_kwargs": OPTIONS,
}  # fmt: skip
PPO: dict[str, Any] = {
    "algo": "ppo", "env_id": "CartPole-v1", "total_timesteps": 64, "checkpoint_interval": 16, "eval_interval": 0,
    "algo_kwargs": {"num_steps": 16, "hidden_sizes": [8], "batch_size": 8},
}  # fmt: skip


def config(values: dict[str, Any], path: Path, **changes: Any) -> Any:
    return parse_config({**values, "output_dir": str(path), **changes})


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after three checkpoints."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    run_training(config(BC, path), callbacks=[StopAtStep(30)])
    return path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def other_format(run: Path) -> str:
    for manifest in run.glob("checkpoints/*/manifest.json"):
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format_version": 2}))
    return (
        f"no checkpoint of the run in {run} can be used: checkpoint {run}/checkpoints/step_000000030 has format 2, but "
        "this version of rl_training reads format 1; use the version of rl_training that wrote it, or start over with "
        "--fresh (fresh=True in Python)"
    )


def flipped_bit(run: Path) -> str:
    for weights in run.glob("checkpoints/*/learner.safetensors"):
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    return (
        f"no checkpoint of the run in {run} can be used: checkpoint {run}/checkpoints/step_000000030 is damaged: "
        "learner.safetensors does not match its checksum; use another checkpoint or copy this one again, or start over "
        "with --fresh (fresh=True in Python)"
    )


def missing(run: Path) -> str:
    shutil.rmtree(run / "checkpoints")
    return (
        f"{run} has saved checkpoints, but {run}/checkpoints is missing now; restore it from a copy, or start over "
        "with --fresh (fresh=True in Python)"
    )


def emptied(run: Path) -> str:
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)
    return (
        f"{run} has saved checkpoints, but {run}/checkpoints holds none now; restore it from a copy, or start over "
        "with --fresh (fresh=True in Python)"
    )


def start_again(run: Path) -> Any:
    return run_training(config(BC, run))


def start_from_an_agent(run: Path) -> Any:
    other = run_training(config(BC, run.with_name("other"), total_timesteps=1))
    return run_training(config(BC, run), start_from=other.checkpoint_path)


def call_resume_training(run: Path) -> Any:
    return rl_training.resume_training(run)


def learn(run: Path) -> Any:
    return rl_training.BC(config(BC, run)).learn()


DAMAGES = [other_format, flipped_bit, missing, emptied]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("call", [start_again, resume_run, start_from_an_agent, call_resume_training, learn])
def test_python_calls_refuse_the_run_and_leave_it_as_it_is(
    run: Path, damage: Callable[[Path], str], call: Callable[[Path], Any]
) -> None:
    sentence = damage(run)
    before = contents(run)
    with pytest.raises(UnusableRunError) as refused:
        call(run)
    assert str(refused.value) == sentence
    assert contents(run) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_commands_refuse_the_run_with_exit_code_2_and_one_sentence(run: Path, damage: Callable[[Path], str]) -> None:
    sentence = damage(run)
    before = contents(run)
    for command in (["train", str(run / "config.yaml"), "--output", str(run)], ["resume", str(run)]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.stderr, result.stdout) == (2, f"error: {sentence}\n", "")
        assert contents(run) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_fresh_starts_a_refused_run_over(run: Path, damage: Callable[[Path], str], tmp_path: Path) -> None:
    damage(run)
    run_training(config(BC, run), fresh=True)
    run_training(config(BC, tmp_path / "whole"))
    assert compare_runs(run, tmp_path / "whole") == []


@pytest.mark.parametrize("damage", [other_format, flipped_bit])
def test_a_run_of_an_earlier_version_is_refused_by_its_checkpoints_alone(
    run: Path, damage: Callable[[Path], str]
) -> None:
    directory = RunDirectory(run)
    record = directory.read("run.json") or {}
    assert record.pop("first_checkpoint") == 10
    directory.write("run.json", record)
    sentence = damage(run)
    with pytest.raises(UnusableRunError) as refused:
        resume_run(run)
    assert str(refused.value) == sentence


def test_a_run_stopped_before_its_first_checkpoint_starts_again(run: Path, tmp_path: Path) -> None:
    directory = RunDirectory(run)
    directory.write("run.json", {**(directory.read("run.json") or {}), "first_checkpoint": None})
    shutil.rmtree(run / "checkpoints")
    assert run_training(config(BC, run)).status == "finished"
    run_training(config(BC, tmp_path / "whole"))
    assert compare_runs(run, tmp_path / "whole") == []


def test_a_checkpoint_without_its_record_is_used_and_recorded(run: Path, tmp_path: Path) -> None:
    directory = RunDirectory(run)
    directory.write("run.json", {**(directory.read("run.json") or {}), "first_checkpoint": None})
    assert resume_run(run).status == "finished"
    assert json.loads((run / "run.json").read_text())["first_checkpoint"] == 30


def test_a_damaged_record_is_refused_and_fresh_starts_over(run: Path) -> None:
    (run / "run.json").write_text("{")
    before = contents(run)
    with pytest.raises(ValueError, match=r"run\.json is damaged .*; restore it from a copy, or start over with"):
        resume_run(run)
    assert contents(run) == before
    assert run_training(config(BC, run), fresh=True).status == "finished"


@pytest.fixture(scope="module")
def stopped_seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A population of two seeds that was stopped after three checkpoints."""
    path = tmp_path_factory.mktemp("seeds")
    run_population(seeds(BC, path), callbacks=[StopAtStep(30)])
    return path


def seeds(values: dict[str, Any], path: Path, count: int = 2) -> list[Any]:
    return [config(values, path / f"seed_{seed}", seed=seed) for seed in range(count)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_population_is_refused_if_one_member_has_no_usable_checkpoint(
    stopped_seeds: Path, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    damage(path / "seed_1")
    before = contents(path)
    with pytest.raises(UnusableRunError, match=r"or start over with --fresh \(fresh=True in Python\)") as refused:
        train_seeds(seeds(BC, path))
    assert str(path / "seed_1" / "checkpoints") in str(refused.value)
    assert contents(path) == before


def weights(path: Path) -> list[bytes]:
    """The contents of the last checkpoints of three seeds."""
    files = [sorted((path / f"seed_{seed}").glob("checkpoints/*/*.safetensors")) for seed in range(3)]
    assert all(files)
    return [each[-1].read_bytes() for each in files]


def test_new_seeds_train_after_the_stopped_ones_whose_resume_is_exact(
    stopped_seeds: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole"
    train_seeds(seeds(BC, whole))
    train_seeds(seeds(BC, whole, count=3))
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    capfd.readouterr()
    results = train_seeds(seeds(BC, path, count=3))
    assert [(result.status, result.trained) for result in results] == [("finished", True)] * 3
    assert capfd.readouterr().err == "first continues seeds 0, 1, then starts seed 2\n"
    assert weights(path) == weights(whole)


def test_new_seeds_do_not_start_if_the_stopped_ones_are_stopped_again(stopped_seeds: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    results = train_seeds(seeds(BC, path, count=3), callbacks=[StopAtStep(40)])
    assert [(result.status, result.steps) for result in results] == [("stopped", 40)] * 2 + [("stopped", 0)]
    assert [result.trained for result in results] == [True, True, False]
    assert not (path / "seed_2").exists()


class SignalAtEnd(Callback):
    def on_train_end(self, state: TrainerState) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_new_seeds_do_not_start_after_a_signal_at_the_end_of_the_stopped_ones(
    stopped_seeds: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    results = train_seeds(seeds(BC, path, count=3), callbacks=[SignalAtEnd()])
    assert [result.status for result in results] == ["finished", "finished", "stopped"]
    assert results[0].signal == signal.SIGTERM
    assert not (path / "seed_2").exists()


def test_a_member_whose_directory_was_removed_is_no_new_seed(stopped_seeds: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    shutil.rmtree(path / "seed_1")
    with pytest.raises(UnusableRunError, match=r"seed_1 has not started, .*; train each seed in a command of its own"):
        train_seeds(seeds(BC, path))


def test_seeds_that_began_apart_are_continued_as_they_began(stopped_seeds: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    run_training(config(BC, path / "seed_2", seed=2), callbacks=[StopAtStep(5)])
    together = "seed_2 cannot continue together, because they have no checkpoint of the same step"
    with pytest.raises(UnusableRunError, match=rf"{together}; continue --seeds 0,1 .* first"):
        train_seeds(seeds(BC, path, count=3))
    results = train_seeds(seeds(BC, path, count=4)[2:])
    assert [result.status for result in results] == ["finished"] * 2


def test_members_of_one_population_without_a_common_step_may_continue_alone(
    stopped_seeds: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(stopped_seeds, tmp_path / "seeds"))
    for step in (10, 30):
        shutil.rmtree(path / "seed_0" / "checkpoints" / f"step_{step:09d}", ignore_errors=True)
    shutil.rmtree(path / "seed_1" / "checkpoints" / "step_000000020")
    with pytest.raises(UnusableRunError, match="the same step; train each seed in a command of its own, or start over"):
        train_seeds(seeds(BC, path))


def test_seeds_in_processes_are_refused_before_one_of_them_starts(tmp_path: Path) -> None:
    for each in seeds(PPO, tmp_path):
        run_training(each, callbacks=[StopAtStep(32)])
    flipped_bit(tmp_path / "seed_1")
    before = contents(tmp_path)
    with pytest.raises(UnusableRunError, match=r"no checkpoint of the run in .*seed_1 can be used: checkpoint"):
        train_seeds(seeds(PPO, tmp_path))
    assert contents(tmp_path) == before
