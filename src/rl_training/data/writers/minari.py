"""Datasets to Minari directories in HDF5; the minari package is not needed."""

import json
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.datasets.validation import find_breaks
from rl_training.data.extras import import_h5py
from rl_training.data.readers.minari import datasets_root
from rl_training.data.writers.files import arrays_in_env_units
from rl_training.types import Arrays, EnvSpec

VERSION = "0.5.0"  # the first Minari version with this layout, which later versions read
STORED_AS = {"actions": "actions", "rewards": "rewards", "dones": "terminations", "truncated": "truncations"}


def save_minari(
    dataset: TransitionDataset, directory: str | Path, *, dataset_id: str | None = None, env_id: str | None = None
) -> None:
    """Writes a new Minari dataset; columns that Minari does not have become infos.

    `minari.load_dataset(id)` finds datasets at `<Minari's dataset directory>/<id>`. Episodes are split where next_obs
    differs from the next row's obs, because Minari stores that observation once.
    """
    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(f"{directory} exists; name a new directory for the Minari dataset")
    name = dataset_id or _id_of(directory)
    if not re.fullmatch(r"([-\w]+/)*[-\w]+-v\d+", name):
        raise ValueError(f"dataset_id must be NAME-vN or NAMESPACE/NAME-vN, got {name!r}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".minari-") as temporary:
        data = Path(temporary) / "new" / "data"
        data.mkdir(parents=True)
        episodes = _write_episodes(dataset, data / "main_data.hdf5")
        size = round((data / "main_data.hdf5").stat().st_size / 1e6, 1)
        totals = {"total_episodes": episodes, "total_steps": len(dataset), "dataset_size": size}
        metadata = {**_metadata(dataset.spec, env_id), "dataset_id": name, **totals}
        (data / "metadata.json").write_text(json.dumps(metadata))
        os.replace(data.parent, directory)


def _id_of(directory: Path) -> str:
    directory, root = directory.resolve(), datasets_root().resolve()
    name = directory.relative_to(root).as_posix() if directory.is_relative_to(root) else directory.name
    return name if re.search(r"-v\d+$", name) else f"{name}-v0"


def _write_episodes(dataset: TransitionDataset, path: Path) -> int:
    arrays = arrays_in_env_units(dataset)
    ends = dataset.episode_ends.cpu().numpy().copy()
    ends[:-1] |= find_breaks(arrays["obs"], arrays["next_obs"])
    last = np.flatnonzero(ends).tolist()
    arrays["truncated"] = ends & (arrays["dones"] == 0)
    arrays["dones"] = arrays["dones"] != 0
    with import_h5py().File(path, "w", track_order=True) as file:
        for number, (start, stop) in enumerate(zip([0, *(row + 1 for row in last)], last, strict=False)):
            group = file.create_group(f"episode_{number}")
            group.attrs.update({"id": number, "total_steps": stop + 1 - start})
            for name, part in _episode(arrays, start, stop + 1).items():
                group.create_dataset(name, data=part)
    return len(last)


def _episode(arrays: Arrays, start: int, stop: int) -> Arrays:
    rows = {name: array[start:stop] for name, array in arrays.items() if name not in ("obs", "next_obs")}
    observations = np.concatenate([arrays["obs"][start:stop], arrays["next_obs"][stop - 1 : stop]])
    return {"observations": observations, **{STORED_AS.get(name, f"infos/{name}"): rows[name] for name in rows}}


def _metadata(spec: EnvSpec, env_id: str | None) -> dict[str, Any]:
    observations = _box(spec.obs_dtype, spec.obs_shape, *((0, 255) if spec.obs_dtype == "uint8" else (-np.inf, np.inf)))
    if spec.action_kind == "discrete":
        actions = {"type": "Discrete", "dtype": "int64", "start": spec.action_start, "n": spec.action_dim}
    else:
        actions = _box("float32", spec.action_shape, spec.action_low, spec.action_high)
    metadata = {
        "minari_version": VERSION, "data_format": "hdf5", "jpeg_encoding": False,
        "observation_space": json.dumps(observations), "action_space": json.dumps(actions),
    }  # fmt: skip
    if env_id is not None:
        import gymnasium

        metadata["env_spec"] = gymnasium.spec(env_id).to_json()
    return metadata


def _box(dtype: str, shape: tuple[int, ...], low: Any, high: Any) -> dict[str, Any]:  # bounds are scalar or flat
    low, high = (np.broadcast_to(bound, math.prod(shape)).reshape(shape).tolist() for bound in (low, high))
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": low, "high": high}
