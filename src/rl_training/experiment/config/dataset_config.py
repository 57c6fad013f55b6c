"""The dataset section of a config: files and recipes, their weights, and reward transforms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from rl_training.experiment.config.fields import Count, CountOrZero, Location, Name, Section
from rl_training.experiment.config.messages import ConfigError, shown

Weight = Annotated[float, Field(gt=0)]


class DatasetRecipe(Section):
    """Transitions collected in the environment by a random or a trained policy."""

    kind: Literal["random", "policy"] = Field(description="behaviour policy: random, or policy (a trained one)")
    rows: Count = Field(description="transitions to collect")
    seed: CountOrZero = Field(0, description="random seed of the environment and the actions")
    env_id: Name | None = Field(None, description="environment id; none: the environment of the run")
    policy: Location | None = Field(None, description="run directory or checkpoint of the trained policy")
    epsilon: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="probability of a random action")

    @model_validator(mode="after")
    def _fits_kind(self) -> DatasetRecipe:
        if self.kind == "policy" and self.policy is None:
            raise ValueError("policy is required for kind: policy; give a run directory or a checkpoint")
        if self.kind == "random" and (self.policy or self.epsilon):
            raise ValueError("policy and epsilon need kind: policy, got kind: random")
        return self


class RecipePart(DatasetRecipe):
    weight: Weight | None = Field(None, description="sampling weight relative to the other sources")


class FilePart(Section):
    source: Location = Field(description="file, glob, Minari directory or Minari id")
    weight: Weight | None = Field(None, description="sampling weight relative to the other sources")


def _file_as_part(value: Any) -> Any:
    if isinstance(value, (str, PurePath)):
        return {"source": str(value)}
    if not isinstance(value, (Mapping, Section)):
        raise ValueError(f"must be a file, or a mapping with source or kind, got {shown(value)}")
    return value


def _data_in_memory(value: object) -> str:
    """The name of a TransitionDataset or a DataFrame, and what to do; empty for other values."""
    if not hasattr(value, "columns"):
        return ""
    how = "with save_transition_dataset" if hasattr(value, "spec") else "such as data.parquet"
    return f"a {type(value).__name__}; write it to a file {how}, and give the path"


def _any_source(value: Any) -> Any:
    if not isinstance(value, (str, PurePath, Mapping, Section, list, tuple)):
        raise ValueError(f"must be a file, a recipe or a list of them, got {_data_in_memory(value) or shown(value)}")
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError("must name at least one source, got []")
    return [value] if isinstance(value, Mapping) and "source" in value else value


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "parts"
    recipe = "kind" in value if isinstance(value, Mapping) else isinstance(value, DatasetRecipe)
    return "recipe" if recipe else "file"


def _whole_kind(value: Any) -> str:
    return "recipe" if isinstance(value, Mapping) else _kind(value)


# The discriminator chooses the form first, so that errors mention only the form that was given.
DatasetPart = Annotated[
    Annotated[RecipePart, Tag("recipe")] | Annotated[FilePart, Tag("file")],
    Discriminator(_kind),
    BeforeValidator(_file_as_part),
]
Parts = tuple[DatasetPart, ...]
Dataset = Annotated[
    Annotated[Location, Tag("file")] | Annotated[DatasetRecipe, Tag("recipe")] | Annotated[Parts, Tag("parts")],
    Discriminator(_whole_kind),
    BeforeValidator(_any_source),
]
EXPERT_KEYS = {f"expert_dataset_{key}": key for key in ("kind", "path", "id", "size")}  # an older spelling of `dataset`
EXPERT_KINDS = {  # kind -> required keys
    "random": ("size",), "policy": ("path", "size"), "minari": ("id",),
    "npz": ("path",), "hdf5": ("path",), "parquet": ("path",), "csv": ("path",),
}  # fmt: skip


def expert_dataset(kind: Any = None, **details: Any) -> Any:
    """Converts the options `expert_dataset_*` to a value of `dataset`; None if no option is given."""
    given = {key: value for key, value in details.items() if value is not None}
    if kind is None and set(given) in ({"path"}, {"id"}, set()):  # the file name gives the format
        return next(iter(given.values()), None)
    if kind not in EXPERT_KINDS:
        raise ConfigError(f"expert_dataset_kind: must be one of {', '.join(EXPERT_KINDS)}, got {shown(kind)}")
    for key in (*EXPERT_KINDS[kind], *given):
        if key not in given:
            raise ConfigError(f"expert_dataset_{key} is required for expert_dataset_kind: {kind}")
        if key not in EXPERT_KINDS[kind]:
            raise ConfigError(f"expert_dataset_{key} is not used with expert_dataset_kind: {kind}; remove it")
    if kind in ("random", "policy"):
        return {"kind": kind, "rows": given["size"], **({"policy": given["path"]} if kind == "policy" else {})}
    (source,) = given.values()
    if kind != "minari" and PurePath(str(source)).suffix.replace(".h5", ".hdf5") != f".{kind}":
        raise ConfigError(f"expert_dataset_path: must end in .{kind}, got {shown(source)}")
    return source


def lift_dataset(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Moves a dataset given in `algo_kwargs` to the key `dataset`."""
    options = values.get("algo_kwargs")
    if not isinstance(options, Mapping) or not {"dataset", *EXPERT_KEYS} & options.keys():
        return dict(values)
    sources = {
        "dataset": values.get("dataset"), "algo_kwargs.dataset": options.get("dataset"),
        "algo_kwargs.expert_dataset_*": expert_dataset(**{key: options.get(name) for name, key in EXPERT_KEYS.items()}),
    }  # fmt: skip
    given = [name for name, source in sources.items() if source is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} are both given; remove one")
    rest = {name: value for name, value in options.items() if name != "dataset" and name not in EXPERT_KEYS}
    return {**values, "algo_kwargs": rest, "dataset": sources[given[0]] if given else None}


def _low_and_high(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"must be [low, high], got {shown(value)}")
    return value


class RewardTransform(Section):
    """Transforms the rewards of a dataset, in this order: normalize, scale, shift, clip."""

    normalize: Literal["none", "return_range"] = Field(
        "none", description="return_range: scale so that the best and worst episode returns differ by 1000"
    )
    scale: float = Field(1.0, description="factor by which rewards are multiplied")
    shift: float = Field(0.0, description="added to the scaled rewards; -1 for AntMaze")
    clip: Annotated[tuple[float, float], BeforeValidator(_low_and_high)] | None = Field(
        None, description="[low, high] bounds of the shifted rewards"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RewardTransform:
        if self.scale == 0:
            raise ValueError("scale must not be 0: all rewards would be 0")
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip must be [low, high] with low < high, got {list(self.clip)}")
        return self


def _categories(value: Any) -> Any:
    return dict.fromkeys(value, ()) if isinstance(value, (list, tuple)) else value


def _dialect(value: Any) -> Any:
    from rl_training.data.readers.options import check_dialect

    return check_dialect(value) if isinstance(value, str) else value


class TableOptions(Section):
    """How to read tables: CSV and Parquet files."""

    csv_dialect: Annotated[str, BeforeValidator(_dialect)] = Field(
        "auto", description="separators of cells and decimals, such as semicolon_decimal_comma; auto: detected"
    )
    categories: Annotated[dict[str, tuple[Annotated[str, BeforeValidator(str)], ...]], BeforeValidator(_categories)] = (
        Field({}, description="columns of names, and their values in order; []: the values in the data")
    )
    max_gap: Annotated[float, Field(gt=0)] | None = Field(
        None, description="seconds; a longer step in the time column ends the episode"
    )


def _pattern(value: Any) -> Any:
    is_list = isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    return ",".join(value) if is_list else value


ColumnPattern = Annotated[str, BeforeValidator(_pattern)]  # a list of columns becomes `a,b`


def _faults(names: Any) -> Any:
    from rl_training.data.datasets.validation import REPAIRABLE  # imports numpy

    names = [names] if isinstance(names, str) else names
    unknown = [name for name in names if name not in REPAIRABLE] if isinstance(names, (list, tuple)) else [names]
    if unknown:
        raise ValueError(f"must be among {', '.join(REPAIRABLE)}, got {shown(unknown[0])}")
    return names


Faults = Annotated[tuple[str, ...], BeforeValidator(_faults)]
Bound = float | tuple[float, ...]  # for all dimensions, or for each
ActionRange = Annotated[tuple[Bound, Bound], BeforeValidator(_low_and_high)]


def require_file(dataset: object, reading: Mapping[str, Any]) -> None:
    parts = dataset if isinstance(dataset, tuple) else (dataset,)
    given = [name for name, value in reading.items() if value and value != TableOptions()]
    if given and not any(isinstance(part, (str, FilePart)) for part in parts):
        raise ValueError(f"{given[0]} applies to dataset files, and the dataset has no file; remove it or give a file")


def require_weights(dataset: object) -> None:
    if isinstance(dataset, tuple) and len({part.weight is None for part in dataset}) > 1:
        raise ValueError("dataset: give every source a weight, or none (then all rows are sampled uniformly)")
