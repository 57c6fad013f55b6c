"""What a run learns from, as its config says it: files and recipes, their shares, and what is done to rewards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from rl_training.experiment.config.fields import Count, CountOrZero, Location, Name, Section
from rl_training.experiment.config.messages import ConfigError, shown

Weight = Annotated[float, Field(gt=0)]


class DatasetRecipe(Section):
    """Rows rolled from the environment by a random policy or a trained one."""

    kind: Literal["random", "policy"] = Field(description="who acts: random, or policy, a trained one")
    rows: Count = Field(description="transitions to roll")
    seed: CountOrZero = Field(0, description="of the environment and of the actions")
    env_id: Name | None = Field(None, description="another environment than the run's")
    policy: Location | None = Field(None, description="the run directory or checkpoint that acts")
    epsilon: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="share of its actions that are random")

    @model_validator(mode="after")
    def _fits_kind(self) -> DatasetRecipe:
        if self.kind == "policy" and self.policy is None:
            raise ValueError("policy is required for kind: policy; it is a run directory or a checkpoint")
        if self.kind == "random" and (self.policy or self.epsilon):
            raise ValueError("policy and epsilon go with kind: policy, got kind: random")
        return self


class RecipePart(DatasetRecipe):
    """A recipe among several sources."""

    weight: Weight | None = Field(None, description="how often it is drawn from, beside the others")


class FilePart(Section):
    """A file among several sources."""

    source: Location = Field(description="a file, a glob, or a Minari directory or id")
    weight: Weight | None = Field(None, description="how often it is drawn from, beside the others")


def _file_as_part(value: Any) -> Any:
    if isinstance(value, (str, PurePath)):
        return {"source": str(value)}
    if not isinstance(value, (Mapping, Section)):
        raise ValueError(f"must be a file, or a mapping with source or kind, got {shown(value)}")
    return value


def _any_source(value: Any) -> Any:
    if not isinstance(value, (str, PurePath, Mapping, Section, list, tuple)):
        raise ValueError(f"must be a file, a recipe or a list of them, got {shown(value)}")
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


# Told apart beforehand, so that a mistake is answered by the one form that was meant.
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


EXPERT_KEYS = {f"expert_dataset_{key}": key for key in ("kind", "path", "id", "size")}  # as imitation names them
EXPERT_KINDS = {  # what goes with each of them
    "random": ("size",), "policy": ("path", "size"), "minari": ("id",),
    "npz": ("path",), "hdf5": ("path",), "parquet": ("path",), "csv": ("path",),
}  # fmt: skip


def expert_dataset(kind: Any = None, **details: Any) -> Any:
    """A dataset as the options `expert_dataset_*` say it; None where none of them is given."""
    given = {key: value for key, value in details.items() if value is not None}
    if kind is None and set(given) in ({"path"}, {"id"}, set()):  # a file's name says what it is
        return next(iter(given.values()), None)
    if kind not in EXPERT_KINDS:
        raise ConfigError(f"expert_dataset_kind: must be one of {', '.join(EXPERT_KINDS)}, got {shown(kind)}")
    for key in (*EXPERT_KINDS[kind], *given):
        if key not in given:
            raise ConfigError(f"expert_dataset_{key} is required for expert_dataset_kind: {kind}")
        if key not in EXPERT_KINDS[kind]:
            raise ConfigError(f"expert_dataset_{key} does not go with expert_dataset_kind: {kind}")
    if kind in ("random", "policy"):
        return {"kind": kind, "rows": given["size"], **({"policy": given["path"]} if kind == "policy" else {})}
    (source,) = given.values()
    if kind != "minari" and PurePath(str(source)).suffix.replace(".h5", ".hdf5") != f".{kind}":
        raise ConfigError(f"expert_dataset_path: must end in .{kind} for that kind, got {shown(source)}")
    return source


def _low_and_high(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"must be [low, high], got {shown(value)}")
    return value


class RewardTransform(Section):
    """What is done to a dataset's rewards, in this order: normalize, scale, shift, clip."""

    normalize: Literal["none", "return_range"] = Field(
        "none", description="return_range: the best and worst episode come to lie 1000 apart"
    )
    scale: float = Field(1.0, description="rewards are multiplied by it")
    shift: float = Field(0.0, description="then it is added; -1 for AntMaze")
    clip: Annotated[tuple[float, float], BeforeValidator(_low_and_high)] | None = Field(
        None, description="then they are kept within these bounds"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RewardTransform:
        if self.scale == 0:
            raise ValueError("scale must not be 0: nothing would be left of the rewards")
        if self.clip is not None and self.clip[0] >= self.clip[1]:
            raise ValueError(f"clip must be [low, high] with low < high, got {list(self.clip)}")
        return self


def _faults(names: Any) -> Any:
    from rl_training.data.datasets.validation import REPAIRABLE  # which imports numpy

    names = [names] if isinstance(names, str) else names
    unknown = [name for name in names if name not in REPAIRABLE] if isinstance(names, (list, tuple)) else [names]
    if unknown:
        raise ValueError(f"must be among {', '.join(REPAIRABLE)}, got {shown(unknown[0])}")
    return names


Faults = Annotated[tuple[str, ...], BeforeValidator(_faults)]
Bound = float | tuple[float, ...]  # of all dimensions, or of each
ActionRange = Annotated[tuple[Bound, Bound], BeforeValidator(_low_and_high)]


def require_use(dataset: object, reading: Mapping[str, Any]) -> None:
    """What is said about a file must have a file to be about."""
    parts = dataset if isinstance(dataset, tuple) else (dataset,)
    given = [name for name, value in reading.items() if value]
    if given and not any(isinstance(part, (str, FilePart)) for part in parts):
        raise ValueError(f"{given[0]} says how to read a file, and the dataset is none")


def require_weights(dataset: object) -> None:
    if isinstance(dataset, tuple) and len({part.weight is None for part in dataset}) > 1:
        raise ValueError("dataset: give every source a weight, or none: then each row is drawn as often as any other")
