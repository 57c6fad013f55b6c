"""Compares the config.yaml of a run with the config in its newest checkpoint: someone may have edited the file."""

from typing import Any

from rl_training.experiment.config.messages import ConfigError, shown
from rl_training.experiment.config.overrides import MAY_CHANGE
from rl_training.experiment.config.train_config import TrainConfig, config_differences, parse_config
from rl_training.experiment.run_directory import ELSEWHERE, RunDirectory
from rl_training.messages import Warn, command
from rl_training.runtime.checkpoints.format import MANIFEST, CheckpointError, parse_manifest
from rl_training.runtime.checkpoints.reading import list_checkpoints


def accept_edits(directory: RunDirectory, config: TrainConfig, warn: Warn) -> set[str]:
    """Returns the keys of `config` that differ from the newest checkpoint; raises if one of them may not change."""
    name, saved = _newest_config(directory)
    changed = {} if saved is None else config_differences(saved, config)
    refused = {key: values for key, values in changed.items() if not _may_change(key, *values)}
    if refused:
        resume = command("resume", directory.path, "--steps", "N")
        longer = f"; `{resume}` changes the number of steps" if "total_timesteps" in refused else ""
        raise ConfigError(
            f"{directory.path / 'config.yaml'} was edited after checkpoint {name}: {_named(refused)}; a run cannot "
            f"change this, so undo the edit or choose {ELSEWHERE}{longer}"
        )
    if changed:
        warn(
            f"config.yaml was edited after checkpoint {name}: {_named(changed)}; the run continues with the new values"
        )
    return set(changed)


def _may_change(key: str, old: Any, new: Any) -> bool:
    moved = key == "dataset" and isinstance(old, str) and isinstance(new, str)  # its contents are checked later
    return moved or key in MAY_CHANGE


def _named(changed: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key} was {shown(old)} and is now {shown(new)}" for key, (old, new) in changed.items())


def _newest_config(directory: RunDirectory) -> tuple[str, TrainConfig | None]:
    """Returns name and config of the newest checkpoint with a readable manifest; its other files are not verified."""
    for path in reversed(list_checkpoints(directory.checkpoints)):
        try:
            info = parse_manifest(path, (path / MANIFEST).read_bytes()).info
        except (CheckpointError, OSError):
            continue
        return path.name, parse_config(info["config"])
    return "", None
