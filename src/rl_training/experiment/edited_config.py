"""Compares a run with its newest checkpoint, whose config may have been edited, and with its environment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.envs.creation.fingerprints import FIXED, OTHER, changes
from rl_training.experiment.agent import read_record
from rl_training.experiment.config.differences import MAY_CHANGE, Differences, config_differences
from rl_training.experiment.config.messages import ConfigError, shown
from rl_training.experiment.config.train_config import TrainConfig, parse_config
from rl_training.experiment.run_directory import ELSEWHERE, RunDirectory
from rl_training.experiment.trust import warn_of_changed_source
from rl_training.messages import Warn, command
from rl_training.modules import LOCAL
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


def compare_environment(runs: Sequence[Path], config: TrainConfig, warn: Warn, *, resumed: bool) -> None:
    """Warns if the environment's code has changed; raises ConfigError if the numbers or strings that it uses have.

    `resumed`: the run is continued explicitly, so that an environment given now may differ.
    """
    records, run = list(map(read_record, runs)), runs[0]
    warn_of_changed_source(*records, warn=warn)
    if resumed or config.given is None:
        return
    began, now = (records[0].get("environment") or {}).get("fingerprint"), config.given.fingerprint
    name = str(config.env_id).removeprefix(LOCAL)
    if values := changes(began, now, FIXED):
        raise ConfigError(
            f"the environment {name} differs from the one that the run {run} began with, in {', '.join(values)}; "
            f"choose another output_dir, or use fresh=True. To continue in this environment, load({str(run)!r}, env=…)"
        )
    if hints := changes(began, now, OTHER):
        warn(
            f"the environment {name} may differ from the one that the run {run} began with, in {', '.join(hints)}; to "
            "train anew, choose another output_dir, or use fresh=True"
        )


def _may_change(key: str, old: Any, new: Any) -> bool:
    moved = key == "dataset" and isinstance(old, str) and isinstance(new, str)  # its contents are checked later
    return moved or key in MAY_CHANGE


def _named(changed: Differences) -> str:
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
