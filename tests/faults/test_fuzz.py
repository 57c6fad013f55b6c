"""Random input is accepted as what it is, or refused in a sentence that this package wrote."""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import rl_training
from rl_training.algorithms import CATALOGUE
from rl_training.cli import app
from rl_training.data import load_transition_dataset
from rl_training.data.writers import save_npz
from rl_training.data.writers.files import save_parquet
from rl_training.experiment import run as run_module
from rl_training.experiment.config.train_config import ConfigError, TrainConfig, config_yaml, parse_config
from rl_training.experiment.config.yaml_text import read_yaml
from rl_training.experiment.run_directory import RunDirectory
from rl_training.experiment.user_errors import USER_ERRORS
from rl_training.runtime.checkpoints.format import CheckpointError
from rl_training.runtime.checkpoints.reading import read_checkpoint
from rl_training.runtime.recipes import roll_dataset

HOME = str(Path(rl_training.__file__).parent)
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 64, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "auto", "cpu",
    "cuda:9", "random", "CartPole-v1", "Pendulum-v1", "nan", "1e3", "../x", "a\x00b", "\ud800", "ü", "🙂" * 50, [], [1],
    [[]], {}, {"kind": "random"}, {"kind": "random", "rows": 10}, {"kind": "cosine", "end": 0}, b"\xff", [None, 1],
    {1: 2}, "x" * 5000,
]  # fmt: skip
SUFFIXES = (".npz", ".hdf5", ".csv", ".parquet")


def seeds(fast: int, all_of_them: int) -> list[Any]:
    """Blocks of 100 cases: the first ones run in the fast tests, the others with `soak`."""
    blocks = range(all_of_them // 100)
    return [pytest.param(block, marks=[] if block < fast // 100 else pytest.mark.soak) for block in blocks]


def refused(call: Callable[[], Any], *allowed: type[Exception]) -> str | None:
    """The message of a user error that was raised inside this package, or None if the call succeeded."""
    expected: tuple[type[Exception], ...] = (*allowed, *USER_ERRORS)
    try:
        call()
        return None
    except expected as error:
        raised = error
    place = traceback.extract_tb(raised.__traceback__)[-1]
    assert place.filename.startswith(HOME), f"raw error from {place.filename}:{place.lineno}: {raised!r}"
    assert str(raised).strip(), raised
    return str(raised)


def random_config(rng: random.Random) -> dict[Any, Any]:
    names = [*TrainConfig.model_fields, "algo_kwargs", "gamma", "expectile", "hidden_sizes", "num_step", "", 7]
    values: dict[Any, Any] = {"algo": rng.choice([*CATALOGUE, "sacc", None])}
    for _ in range(rng.randint(0, 6)):
        key = rng.choice(names)
        values[key] = rng.choice(VALUES)
    if rng.random() < 0.5:
        algo = values["algo"] if isinstance(values["algo"], str) else ""
        options = list(CATALOGUE[algo].config_type.model_fields) if algo in CATALOGUE else names
        values["algo_kwargs"] = {rng.choice(options): rng.choice(VALUES) for _ in range(rng.randint(0, 3))}
    return values


@pytest.mark.parametrize("block", seeds(1_000, 10_000))
def test_configs(block):
    rng = random.Random(block)
    for _ in range(100):
        values = random_config(rng)
        if refused(partial(parse_config, values)) is None:
            accepted = parse_config(values)
            assert parse_config(read_yaml(config_yaml(accepted))) == accepted, values


@pytest.mark.parametrize("block", seeds(200, 2_000))
def test_damaged_config_files(block, tmp_path):
    rng = random.Random(block)
    good = config_yaml(parse_config({"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {"hidden_sizes": [8, 8]}}))
    for _ in range(100):
        data = damage(good.encode(), rng)
        (tmp_path / "config.yaml").write_bytes(data)
        refused(lambda: RunDirectory(tmp_path).config(), ConfigError)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Flips, cuts, repeats or inserts a few bytes."""
    for _ in range(rng.choice([1, 1, 1, 5, 30])):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(data):
            data = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        elif kind == 1:
            data = data[:place]
        elif kind == 2:
            data = data[:place] + data[place + rng.randint(1, 40) :]
        elif kind == 3:
            data = data[:place] + rng.randbytes(rng.randint(1, 20)) + data[place:]
        else:
            data = data[:place] + data[: rng.randint(0, 200)] + data[place:]
    return data


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("datasets")
    dataset = roll_dataset("Pendulum-v1", rows=40)
    save_npz(dataset, folder / "data.npz")
    save_parquet(dataset, folder / "data.parquet")
    columns = {name: np.asarray(column) for name, column in dataset.columns.items()}
    with h5py.File(folder / "data.hdf5", "w") as file:
        for name, column in columns.items():
            file[name] = column
    flat = {f"{name}_{i}": column.reshape(len(column), -1)[:, i] for name, column in columns.items()
            for i in range(column.reshape(len(column), -1).shape[1])}  # fmt: skip
    lines = [",".join(flat), *(",".join(map(str, row)) for row in zip(*flat.values(), strict=True))]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return [(folder / f"data{suffix}").read_bytes() for suffix in SUFFIXES]


@pytest.mark.parametrize("block", seeds(200, 2_000))
def test_datasets(block, datasets, tmp_path):
    rng = random.Random(block)
    for _ in range(100):
        kind = rng.randrange(len(SUFFIXES))
        path = tmp_path / f"data{SUFFIXES[kind]}"
        path.write_bytes(damage(datasets[kind], rng))
        refused(partial(load_finite, path))


def load_finite(path: Path) -> None:
    for name, column in load_transition_dataset(path).columns.items():
        assert np.isfinite(np.asarray(column)).all(), name


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", "dqn", "CartPole-v1", "--steps", "60", "--set", "learning_starts=20",
               "--set", "hidden_sizes=[4]", "--set", "eval_interval=0", "--output", str(output)]  # fmt: skip
    assert CliRunner().invoke(app, command).exit_code == 0
    return max((output / "checkpoints").glob("step_*"))


@pytest.mark.parametrize("block", seeds(200, 2_000))
def test_checkpoints(block, checkpoint, tmp_path):
    rng = random.Random(block)
    path = Path(shutil.copytree(checkpoint, tmp_path / checkpoint.name))
    for _ in range(100):
        file = rng.choice(sorted(path.iterdir()))
        good = file.read_bytes()
        file.write_bytes(damage(good, rng))
        changed = file.read_bytes() != good
        message = refused(lambda: read_checkpoint(path), CheckpointError)
        assert (message is not None) == changed, f"{file.name} was damaged, and nobody noticed"
        file.write_bytes(good)


def random_command(rng: random.Random, places: list[str]) -> list[str]:
    commands = [
        "train", "resume", "evaluate", "predict", "dream", "bench", "compare", "algos", "explain", "verify",
        "configs ls", "configs show", "configs copy", "data check", "data show", "data convert", "",
    ]  # fmt: skip
    words = [
        "sac", "iql/pendulum", "ppo", "nothing", "CartPole-v1", "Pendulum-v1", "--seed", "--steps", "--set", "--json",
        "--seeds", "0-2", "3-1", "0,0", "-1", "1e9", "gamma=2", "=", "gamma", "a.b.c=1", "--dataset", "--columns", "x=",
        "--output", "--out", "--obs", "[1,2", "[[]]", "--episodes", "--best", "--ope", "--fresh", "--plot", "--help",
        "", "--device", "cuda:7", "--trust", "os", "\ud800", "é", "x" * 300, *places,
    ]  # fmt: skip
    return [*rng.choice(commands).split(), *(rng.choice(words) for _ in range(rng.randint(0, 6)))]


@pytest.fixture
def _no_training(monkeypatch) -> None:
    """Commands are read and checked up to the point where training would start."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise ConfigError("training is switched off here")

    monkeypatch.setattr(run_module, "_run", refuse)
    monkeypatch.setattr("rl_training.experiment.seeds.sweep.train_seeds", refuse)
    monkeypatch.setattr("rl_training.experiment.bench.runner.Bench.run", refuse)


@pytest.mark.usefixtures("_no_training")
@pytest.mark.parametrize("block", seeds(100, 1_000))
def test_command_lines(block, checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = [str(checkpoint), str(checkpoint.parents[1]), str(tmp_path), "/nowhere", "/dev/null", "."]
    rng = random.Random(block)
    for _ in range(100):
        command = random_command(rng, places)
        result = CliRunner().invoke(app, command)
        assert result.exit_code in (0, 1, 2), (command, result.output)
        assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
        assert "Traceback" not in result.output, (command, result.output)
        assert "--debug shows the traceback" not in result.output, (command, result.output)
