"""A flipped bit or a truncation in any file of a run is noticed, and nothing that was intact is overwritten."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run import resume_run, run_training
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.user_errors import USER_ERRORS
from rl_training.experiment.verify import require_intact
from rl_training.runtime.callbacks.training import StopAtStep
from rl_training.runtime.checkpoints.format import CheckpointError

CONFIG = {
    "algo": "dqn", "env_id": "CartPole-v1", "total_timesteps": 400, "checkpoint_interval": 40, "log_interval": 20,
    "eval_interval": 80, "eval_episodes": 1, "algo_kwargs": {"learning_starts": 20, "hidden_sizes": [8]},
}  # fmt: skip
DERIVED = ("tensorboard", "curve.png", ".lock")  # can be made again, or hold nothing


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    run_training(parse_config({**CONFIG, "output_dir": str(run)}), callbacks=[StopAtStep(200)])
    return run


def contents(run: Path) -> dict[Path, bytes]:
    """The files of a run, without those that are derived from others."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.relative_to(run).parts[0] not in DERIVED]
    return {path.relative_to(run): path.read_bytes() for path in kept}


def damaged_copy(stopped: Path, folder: Path, rng: random.Random, *, truncate: bool) -> tuple[Path, Path]:
    run = Path(shutil.copytree(stopped, folder / "run", dirs_exist_ok=True))
    file = rng.choice(list(contents(run)))
    data = (run / file).read_bytes()
    place = rng.randrange(len(data))
    flipped = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    (run / file).write_bytes(data[:place] if truncate else flipped)
    return run, file


def config_of(run: Path) -> TrainConfig | None:
    """The config without the name of the run directory, which may be renamed."""
    config = RunDirectory(run).config()
    return None if config is None else config.model_copy(update={"output_dir": None})


def is_noticed(run: Path, stopped: Path) -> bool:
    """Whether the files are refused, or resume refuses or warns of what it finds."""
    try:
        require_intact(RunDirectory(run))
        if config_of(run) == config_of(stopped):
            return False
        warnings: list[str] = []
        resume_run(run, steps=220, warn=warnings.append)
    except (CheckpointError, *USER_ERRORS):
        return True
    return bool(warnings)


def check(stopped: Path, folder: Path, seed: int, *, truncate: bool) -> None:
    rng = random.Random(seed)
    run, file = damaged_copy(stopped, folder, rng, truncate=truncate)
    before = contents(run)
    if not is_noticed(run, stopped):  # the same config in other characters
        assert (str(file), config_of(run)) == ("config.yaml", config_of(stopped)), seed
    shutil.rmtree(run)
    run, file = damaged_copy(stopped, folder, random.Random(seed), truncate=truncate)
    try:
        resume_run(run, steps=220, warn=lambda message: None)
    except (CheckpointError, *USER_ERRORS):
        assert contents(run) == before, (seed, file)
    else:
        assert before[file] in contents(run).values() or file.parts[0] == "checkpoints", (seed, file)
    shutil.rmtree(run)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_few(stopped, tmp_path, seed, truncate):
    check(stopped, tmp_path, seed, truncate=truncate)


@pytest.mark.soak
@pytest.mark.parametrize(("first", "truncate"), [*((n * 100, False) for n in range(10)), (0, True)])
def test_many(stopped, tmp_path, first, truncate):
    for seed in range(first, first + 100):
        check(stopped, tmp_path, seed, truncate=truncate)
