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
from rl_training.data.readers.minari import SPEC, datasets_root, stored_key
from rl_training.data.spaces import Actions, Description, Observations, actions_of, leaves, observations_of
from rl_training.data.writers.files import arrays_in_env_units
from rl_training.files import complete_file, errors_naming, fsync_directory, write_atomically
from rl_training.types import Array, Arrays, EnvSpec

VERSION = "0.5.0"  # the first Minari version with this layout, which later versions read
STORED_AS = {"rewards": "rewards", "dones": "terminations", "truncated": "truncations"}


def save_minari(
    dataset: TransitionDataset, directory: str | Path, *, dataset_id: str | None = None, env_id: str | None = None
) -> None:
    """Writes a new Minari dataset; columns that Minari does not have become infos.

    `minari.load_dataset(id)` finds datasets at `<Minari's dataset directory>/<id>`. Episodes are split where next_obs
    differs from the next row's obs, because Minari stores that observation once. Observations, and actions that are
    choices, are stored in the environment's own form.
    """
    directory = Path(directory)
    if directory.exists():
        raise FileExistsError(f"{directory} exists; name a new directory for the Minari dataset")
    name = dataset_id or _id_of(directory)
    if not re.fullmatch(r"([-\w]+/)*[-\w]+-v\d+", name):
        raise ValueError(f"dataset_id must be NAME-vN or NAMESPACE/NAME-vN, got {name!r}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with errors_naming(directory), tempfile.TemporaryDirectory(dir=directory.parent, prefix=".minari-") as temporary:
        data = Path(temporary) / "new" / "data"
        data.mkdir(parents=True)
        episodes = _write_episodes(dataset, data / "main_data.hdf5")
        size = round((data / "main_data.hdf5").stat().st_size / 1e6, 1)
        totals = {"total_episodes": episodes, "total_steps": len(dataset), "dataset_size": size}
        metadata = {**_metadata(dataset.spec, env_id), "dataset_id": name, **totals}
        write_atomically(data / "metadata.json", json.dumps(metadata))
        fsync_directory(data.parent)
        os.replace(data.parent, directory)
        fsync_directory(directory.parent)


def _id_of(directory: Path) -> str:
    directory, root = directory.resolve(), datasets_root().resolve()
    name = directory.relative_to(root).as_posix() if directory.is_relative_to(root) else directory.name
    return name if re.search(r"-v\d+$", name) else f"{name}-v0"


def _write_episodes(dataset: TransitionDataset, path: Path) -> int:
    arrays, converters = arrays_in_env_units(dataset), (_converter(dataset.spec), _choices(dataset.spec))
    ends = dataset.episode_ends.cpu().numpy().copy()
    ends[:-1] |= find_breaks(arrays["obs"], arrays["next_obs"])
    last = np.flatnonzero(ends).tolist()
    arrays["truncated"] = ends & (arrays["dones"] == 0)
    arrays["dones"] = arrays["dones"] != 0
    # Where HDF5 opens the file itself, a full disk ends the process.
    with complete_file(path) as raw, import_h5py().File(raw, "w", track_order=True) as file:
        for number, (start, stop) in enumerate(zip([0, *(row + 1 for row in last)], last, strict=False)):
            group = file.create_group(f"episode_{number}")
            group.attrs.update({"id": number, "total_steps": stop + 1 - start})
            for name, part in _episode(arrays, start, stop + 1, *converters).items():
                group.create_dataset(name, data=part)
    return len(last)


def _converter(spec: EnvSpec) -> Observations | None:
    """Converts observations back to the environment's own form; None without one, or if a part was left out."""
    converter = observations_of(spec)
    return None if converter is None or '"Text"' in json.dumps(spec.obs_space) else converter


def _choices(spec: EnvSpec) -> Actions | None:
    """Converts choices back to the environment's own form; Dicts of Boxes are stored as one Box."""
    return None if spec.action_kind == "box" else actions_of(spec)


def _episode(arrays: Arrays, start: int, stop: int, converter: Observations | None, choices: Actions | None) -> Arrays:
    rows = {name: array[start:stop] for name, array in arrays.items() if name not in ("obs", "next_obs")}
    observations = np.concatenate([arrays["obs"][start:stop], arrays["next_obs"][stop - 1 : stop]])
    stored = _own_parts("observations", observations, converter) | _own_parts("actions", rows.pop("actions"), choices)
    return {**stored, **{STORED_AS.get(name, f"infos/{name}"): rows[name] for name in rows}}


def _own_parts(name: str, rows: Array, converter: Observations | Actions | None) -> Arrays:
    """The parts of a Dict or Tuple observation or action by their path in the file, or the whole itself."""
    if converter is None:
        return {name: rows}
    own, parts = converter.own(rows.reshape(len(rows), -1) if isinstance(converter, Actions) else rows), {}
    for leaf in leaves(converter.space):
        part = own
        for key in leaf.path:
            part = part[key]
        parts["/".join([name, *map(stored_key, leaf.path)])] = part
    return parts


def _metadata(spec: EnvSpec, env_id: str | None) -> dict[str, Any]:
    converter = _converter(spec)
    observations = _box(spec.obs_dtype, spec.obs_shape) if converter is None else _space(converter.space)
    actions = _action_space(spec)
    metadata = {
        "minari_version": VERSION, "data_format": "hdf5", "jpeg_encoding": False,
        "observation_space": json.dumps(observations), "action_space": json.dumps(actions),
    }  # fmt: skip
    is_plain = converter is None and _choices(spec) is None
    metadata |= {} if is_plain else {SPEC: json.dumps(spec.to_json())}
    if env_id is not None:
        import gymnasium

        metadata["env_spec"] = gymnasium.spec(env_id).to_json()
    return metadata


def _action_space(spec: EnvSpec) -> dict[str, Any]:
    if (choices := _choices(spec)) is not None:
        return _space(choices.space)
    if spec.action_kind == "discrete":
        return {"type": "Discrete", "dtype": "int64", "start": spec.action_start, "n": spec.action_dim}
    if spec.action_kind == "box":
        return _box("float32", spec.action_shape, spec.action_low, spec.action_high)
    sizes, starts = (np.reshape(each, spec.action_shape).tolist() for each in (spec.action_sizes, spec.action_starts))
    return {"type": "MultiDiscrete", "dtype": "int64", "nvec": sizes, "start": starts}


def _space(space: Description) -> dict[str, Any]:
    """Minari's JSON for a described space."""
    if space["type"] == "Dict":
        return {**space, "subspaces": {name: _space(each) for name, each in space["subspaces"].items()}}
    if space["type"] == "Tuple":
        return {**space, "subspaces": [_space(each) for each in space["subspaces"]]}
    if space["type"] == "MultiBinary":
        return {"type": "MultiBinary", "n": space["shape"]}
    if space["type"] == "Box":
        return _box(space["dtype"], tuple(space["shape"]), space.get("low"), space.get("high"))
    return dict(space)


def _box(dtype: str, shape: tuple[int, ...], low: Any = None, high: Any = None) -> dict[str, Any]:
    """Bounds are scalar or flat, or all that the dtype holds."""
    if low is None:
        kind = np.dtype(dtype).kind
        info = np.iinfo(dtype) if kind in "iu" else None
        low, high = (info.min, info.max) if info else (False, True) if kind == "b" else (-np.inf, np.inf)
    low, high = (np.broadcast_to(np.ravel(bound), math.prod(shape)).reshape(shape).tolist() for bound in (low, high))
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": low, "high": high}
