"""Reads the test data of a bench before any training, as its scores will read them."""

import glob
from collections.abc import Mapping
from pathlib import Path

from rl_training.envs.creation.making import spec_of
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.experiment.datasets import load_dataset
from rl_training.experiment.ope.policies import load_dataset_like
from rl_training.types import EnvSpec

READING = {"env_id", "env_kwargs", "env_wrappers", "dataset", "dataset_columns", "action_range", "allow", "table"}


def require_test_data(source: str, cells: Mapping[str, TrainConfig]) -> None:
    """Raises an error if the test data are missing, or do not fit the training data of a cell."""
    if not cells:
        return
    path = Path(source)
    if path.suffix and not path.exists() and not glob.has_magic(source):  # Minari ids have no suffix
        raise FileNotFoundError(f"test data {source} not found; give --test a file that exists")
    read: set[str] = set()
    for name, config in cells.items():
        if _reading(config) in read or (spec := _spec(config)) is None:
            continue
        read.add(_reading(config))
        try:
            load_dataset_like(config, spec, source)
        except (TypeError, ValueError, OSError) as error:
            raise ConfigError(f"the test data do not fit {name}: {error}") from error


def _reading(config: TrainConfig) -> str:
    times = [config.algo_kwargs.get(name) for name in ("discount_time", "time_unit")]
    return f"{config.model_dump_json(include=READING)} {times}"


def _spec(config: TrainConfig) -> EnvSpec | None:
    """The spaces of a run, or None if its data or environment cannot be read: its training will report that."""
    try:
        env = config.environment()
        return load_dataset(config)[0].spec if env is None else spec_of(env)
    except Exception:
        return None
