"""Transitions from Minari datasets in HDF5, Arrow or Parquet; the minari package is not needed.

An episode of T steps has T + 1 observations: rows pair observations[:-1] with observations[1:]. Arrow and Parquet pad
all other columns to T + 1 rows; the last row is dropped.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.data.extras import import_arrow, import_h5py, import_parquet
from rl_training.data.readers import rows
from rl_training.data.readers.names import choose_names, matching_columns, other_names
from rl_training.data.readers.parquet import to_array
from rl_training.data.spaces import MAX_CHOICES, Leaf, Observations, leaves, rebuild
from rl_training.types import Array, Arrays, EnvSpec

Episode = Mapping[str, Any]  # column path, and its array or HDF5 dataset
SPEC = "rl_training_spec"  # key of the metadata with the EnvSpec, if observations are stored in another form


def datasets_root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def local_ids() -> list[str]:
    """Ids of the datasets on this machine, as `minari list local` prints them."""
    root = datasets_root()
    return sorted(found.parent.parent.relative_to(root).as_posix() for found in root.glob("**/data/metadata.json"))


def minari_directory(path: Path) -> Path | None:
    """Directory of the data files, given that directory, its parent or a dataset id; None if not found."""
    candidates = [path, path / "data", datasets_root() / path / "data"]
    return next((each for each in candidates if (each / "metadata.json").is_file()), None)


def read_minari(directory: Path, given: Mapping[str, str]) -> rows.StoredColumns:
    metadata = json.loads((directory / "metadata.json").read_text())
    episodes = (_hdf5_episodes if metadata["data_format"] == "hdf5" else _arrow_episodes)(directory, metadata)
    if (first := next(episodes, None)) is None:
        raise ValueError(f"{directory} is empty: it has no episodes")
    given, converter = _nested_observations(metadata, list(first), _nested_actions(metadata, list(first), given))
    names = choose_names(list(first), given, directory)
    _require_plain_images(names["obs"], metadata, directory)
    chosen = {name: matching_columns(pattern, list(first)) for name, pattern in names.items() if name != "next_obs"}
    steps = len(first[chosen["actions"][0]])
    # Infos recorded by Minari have an extra entry for the reset; infos with one entry per step are added columns.
    chosen |= {
        name.removeprefix("infos/"): [name]
        for name in other_names(list(first), names, given)
        if name.startswith("infos/") and first[name].shape[:1] == (steps,)
    }
    numbered = enumerate(chain([first], episodes))
    transitions = (
        _transitions(episode, chosen, f"{directory}, episode {number}", converter) for number, episode in numbered
    )
    columns = rows.fill_columns(transitions, metadata["total_steps"])
    return rows.complete_transitions(columns, names, directory, spec=_spec(metadata, columns["obs"]))


def stored_key(key: str | int) -> str:
    return f"_index_{key}" if isinstance(key, int) else key


def _nested_observations(
    metadata: dict[str, Any], stored: Sequence[str], given: Mapping[str, str]
) -> tuple[Mapping[str, str], Observations | None]:
    """Names all parts of a Dict or Tuple observation as obs, unless the user has named some or a part is an image."""
    space = _described(_space(metadata, "observations"))
    if space.get("type") not in ("Dict", "Tuple") or "obs" in given:
        return given, None
    paths = _paths("observations", space, stored)
    if not paths or any(leaf.dtype == np.uint8 and len(leaf.shape) > 1 for leaf in leaves(space)):
        return given, None
    return {**given, "obs": ",".join(paths)}, Observations(space)


def _nested_actions(metadata: dict[str, Any], stored: Sequence[str], given: Mapping[str, str]) -> Mapping[str, str]:
    """Names all parts of a Dict or Tuple action as actions, unless the user has named some."""
    space = _described(_space(metadata, "actions"))
    if space.get("type") not in ("Dict", "Tuple") or "actions" in given:
        return given
    paths = _paths("actions", space, stored)
    return {**given, "actions": ",".join(paths)} if paths else given


def _paths(name: str, space: Mapping[str, Any], stored: Sequence[str]) -> list[str]:
    """The columns of the parts of a Dict or Tuple, or [] if one is missing; Arrow files number parts with no prefix."""
    for key in (stored_key, str):
        paths = ["/".join([name, *map(key, leaf.path)]) for leaf in leaves(space)]
        if {*paths} <= {*stored}:
            return paths
    return []


def _described(space: Mapping[str, Any]) -> dict[str, Any]:
    parts = space.get("subspaces")
    if isinstance(parts, Mapping):
        return {**space, "subspaces": {name: _described(each) for name, each in parts.items()}}
    if parts is not None:
        return {**space, "subspaces": [_described(each) for each in parts]}
    return {**space, "shape": np.atleast_1d(space["n"]).tolist()} if space.get("type") == "MultiBinary" else dict(space)


def _transitions(episode: Episode, chosen: dict[str, list[str]], source: str, converter: Observations | None) -> Arrays:
    parts: Arrays = {}
    for name, stored in chosen.items():
        for column in stored:
            rows.require_numbers(column, episode[column].dtype, source)
        arrays = [np.asarray(episode[column]) for column in stored]
        parts[name] = rows.join_columns(arrays, name) if converter is None or name != "obs" else _own(arrays, converter)
    steps = len(parts["actions"])
    lengths = {name: len(part) - (name == "obs") for name, part in parts.items()}
    if set(lengths.values()) != {steps}:
        raise ValueError(f"{source}: {steps} steps need {steps + 1} observations and {steps} entries of other columns")
    observations = parts.pop("obs")
    truncated = parts.get("truncated", np.zeros(steps, bool)) != 0
    truncated[-1] |= not parts.get("dones", truncated)[-1]  # the end of an episode's recording truncates it
    return {**parts, "obs": observations[:-1], "next_obs": observations[1:], "truncated": truncated}


def _own(arrays: list[Array], converter: Observations) -> Array:
    parts = [leaf.path for leaf in leaves(converter.space)]
    return converter.rows(rebuild(converter.space, dict(zip(parts, arrays, strict=True))))


def _hdf5_episodes(directory: Path, metadata: dict[str, Any]) -> Iterator[Episode]:
    h5py = import_h5py()
    with h5py.File(directory / "main_data.hdf5", "r") as file:
        for number in range(metadata["total_episodes"]):
            leaves: dict[str, Any] = {}
            file[f"episode_{number}"].visititems(
                lambda name, item, leaves=leaves: leaves.update({name: item} if isinstance(item, h5py.Dataset) else {})
            )
            yield leaves


def _arrow_episodes(directory: Path, metadata: dict[str, Any]) -> Iterator[Episode]:
    arrow = import_arrow()
    for number in range(metadata["total_episodes"]):
        (file,) = (directory / str(number)).glob("part-*")
        is_parquet = metadata["data_format"] == "parquet"
        table = import_parquet().read_table(file) if is_parquet else arrow.ipc.open_file(file).read_all()
        (batch,) = table.combine_chunks().to_batches()
        yield {
            path: to_array(leaf if path.startswith("observations") else leaf[:-1], path, _space(metadata, path))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name != "infos"
            for path, leaf in _leaves(arrow, name, column)
        }


def _leaves(arrow: Any, path: str, column: Any) -> Iterator[tuple[str, Any]]:
    if not arrow.types.is_struct(column.type):
        yield path, column
        return
    for number, each in enumerate(column.type):
        yield from _leaves(arrow, f"{path}/{each.name}", column.field(number))


def _space(metadata: dict[str, Any], path: str) -> dict[str, Any]:
    """The stored description of a column's space."""
    whole, *inner = path.split("/")
    space = json.loads(metadata.get(f"{whole.removesuffix('s')}_space", "{}"))
    for key in inner:
        parts = space.get("subspaces", {})
        space = parts[int(key.removeprefix("_index_"))] if isinstance(parts, list) else parts.get(key, {})
    return dict(space)


def _require_plain_images(name: str, metadata: dict[str, Any], directory: Path) -> None:
    for path in name.split(","):
        space = _space(metadata, path)
        image = space.get("dtype") == "uint8" and len(space["shape"]) in (2, 3) and min(space["shape"][:2]) >= 32
        if image and metadata.get("jpeg_encoding", True):
            raise ValueError(
                f"{directory} stores {path} as JPEG images, which differ from the agent's observations; "
                "write the dataset with jpeg_encoding=False"
            )


def _spec(metadata: dict[str, Any], obs: Array) -> EnvSpec | None:
    """EnvSpec from the stored spaces, or None if the actions are neither choices nor in finite bounds."""
    if SPEC in metadata:
        return EnvSpec.from_json(json.loads(metadata[SPEC]))
    shape, dtype = obs.shape[1:] or (1,), "uint8" if obs.dtype == np.uint8 else "float32"
    space = _described(_space(metadata, "actions"))
    if space.get("type") == "Discrete":
        return EnvSpec(shape, "discrete", space["n"], dtype, action_start=space["start"])
    if space and all(map(_is_choice, parts := list(leaves(space)))):
        return _choices(space, parts, shape, dtype)
    if space.get("type") != "Box" or not np.isfinite([space["low"], space["high"]]).all():
        return None
    low, high = (tuple(np.ravel(space[bound]).tolist()) for bound in ("low", "high"))
    return EnvSpec(shape, "box", len(low), dtype, tuple(space["shape"]), low, high)


def _is_choice(leaf: Leaf) -> bool:
    """Whether actions of a space are choices: also a Box of integers, as in an environment."""
    return leaf.kind != "Box" or (leaf.dtype.kind != "f" and int(leaf.sizes.max()) <= MAX_CHOICES)


def _choices(space: Mapping[str, Any], parts: Sequence[Leaf], shape: tuple[int, ...], dtype: str) -> EnvSpec:
    """EnvSpec of actions that are several choices, as an environment with this space has it."""
    sizes, starts = (
        tuple(np.concatenate([getattr(leaf, name) for leaf in parts]).tolist()) for name in ("sizes", "starts")
    )
    is_plain = space["type"] == "MultiDiscrete"
    own = None if is_plain else dict(space)
    if len(sizes) == 1 and not is_plain:
        return EnvSpec(shape, "discrete", sizes[0], dtype, action_start=starts[0], action_space=own)
    action_shape = parts[0].shape if is_plain else (len(sizes),)
    return EnvSpec(
        shape, "multi_discrete", len(sizes), dtype, action_shape, action_sizes=sizes, action_starts=starts,
        action_space=own,
    )  # fmt: skip
