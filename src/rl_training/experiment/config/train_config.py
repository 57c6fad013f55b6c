"""What a training run can be told, and how it is read from a mapping, a file or the command line."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, ValidationError, model_validator

from rl_training.experiment.config.dataset_config import (
    EXPERT_KEYS,
    ActionRange,
    Dataset,
    DatasetRecipe,
    Faults,
    FilePart,
    RecipePart,
    RewardTransform,
    expert_dataset,
    require_use,
    require_weights,
)
from rl_training.experiment.config.fields import Count, CountOrZero, Location, Name, Section
from rl_training.experiment.config.messages import (
    ConfigError,
    KeyPath,
    KnownKeys,
    describe,
    did_you_mean,
    key_and_value,
    shown,
)
from rl_training.experiment.config.packaged import copy_config, load_config, packaged_config_text, packaged_configs
from rl_training.experiment.config.yaml_text import read_yaml, write_yaml
from rl_training.schedules import Schedule

__all__ = [
    "ConfigError",
    "DatasetRecipe",
    "EarlyStopping",
    "RewardTransform",
    "Schedule",
    "TrainConfig",
    "apply_overrides",
    "config_differences",
    "config_yaml",
    "copy_config",
    "load_config",
    "packaged_config_text",
    "packaged_configs",
    "parse_config",
]


def _device(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", value):
        raise ValueError(f"must be auto, cpu, cuda or cuda:N, got {shown(value)}")
    return value


def _switch(value: Any) -> Any:
    if isinstance(value, bool):  # a bare `on` in YAML 1.1
        return "on" if value else "off"
    return value


class EarlyStopping(Section):
    """Stop after `patience` evaluations that are not better than the best one by more than `min_delta`."""

    patience: Count = Field(description="evaluations to wait for a better one")
    min_delta: Annotated[float, Field(ge=0)] = Field(0.0, description="how much better it must be")


class TrainConfig(Section):
    """One training run. The algorithm's own options are in `algo_kwargs`."""

    algo: Name = Field(description="the algorithm")
    env_id: Name | None = Field(None, description="the environment; none: a dataset stands for it")
    seed: CountOrZero = Field(0, description="every random stream of the run comes from it")
    total_timesteps: Count = Field(100_000, description="gradient steps offline, environment steps online")
    output_dir: Location | None = Field(None, description="the run directory; none: runs/<algo>-<env>-s<seed>")
    device: Annotated[str, BeforeValidator(_device)] = Field("auto", description="auto, cpu, cuda or cuda:N")
    num_envs: Count = Field(1, description="environments stepped together")
    env_workers: CountOrZero = Field(0, description="processes that step them; 0: this one")
    eval_episodes: Count = Field(10, description="episodes in an evaluation")
    eval_stochastic: bool = Field(False, description="evaluations draw their actions, as training does")
    eval_interval: CountOrZero | None = Field(
        None, description="steps between evaluations; none: a tenth of all; 0: never"
    )
    log_interval: Count | None = Field(None, description="steps between lines of the log; none: a hundredth of all")
    checkpoint_interval: Count | None = Field(None, description="steps between checkpoints; none: a tenth of all")
    keep_checkpoints: Count = Field(3, description="newest checkpoints to keep, beside the best")
    algo_kwargs: dict[str, Any] = Field({}, description="the algorithm's options")
    env_kwargs: dict[str, JsonValue] = Field({}, description="passed to the environment's constructor")
    dataset: Dataset | None = Field(None, description="a file or a recipe to learn from, or a list of them")
    dataset_episodes: Count | None = Field(None, description="take the first so many of each source; none: all")
    dataset_stride: Count = Field(1, description="take every so-many-th row of an episode")
    dataset_columns: dict[str, str] = Field({}, description="our name of a column, and the file's")
    action_range: ActionRange | None = Field(None, description="bounds of the file's Box actions: [low, high]")
    allow: Faults = Field(
        (), description="faults of the data to mend, not refuse: nan, out_of_range, no_episode_end, crossing"
    )
    rewards: RewardTransform = Field(RewardTransform(), description="what is done to the dataset's rewards")
    online_steps: CountOrZero = Field(0, description="environment steps after the offline ones, of a learner from data")
    offline_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="share of the dataset in a batch of the online steps"
    )
    updates_per_step: Count = Field(1, description="updates for each of the online steps")
    schedules: dict[str, Schedule] = Field(
        {}, description="options that move as training goes on, such as learning_rate"
    )
    max_updates: Count | None = Field(None, description="stop after so many updates")
    max_epochs: Count | None = Field(None, description="stop after so many passes over the dataset's rows")
    early_stopping: EarlyStopping | None = Field(None, description="stop when evaluations no longer improve")
    threads: Count | None = Field(None, description="CPU threads of torch; none: one")
    compile: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = Field(
        "auto", description="torch.compile: auto, on or off"
    )

    @property
    def duration(self) -> int:
        """Steps of the whole run."""
        return self.total_timesteps + self.online_steps

    @model_validator(mode="before")
    @classmethod
    def _lift_dataset(cls, values: Any) -> Any:
        return lift_dataset(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        parts = self.dataset if isinstance(self.dataset, tuple) else (self.dataset,)
        if self.env_id is None and any(isinstance(part, DatasetRecipe) and part.env_id is None for part in parts):
            raise ValueError("env_id is required: a dataset recipe is rolled from an environment")
        reading = {name: getattr(self, name) for name in ("dataset_columns", "action_range", "allow")}
        require_use(self.dataset, reading)
        require_weights(self.dataset)
        if self.dataset_stride > 1 and self.rewards.normalize != "none":
            raise ValueError("dataset_stride leaves out rewards, so rewards.normalize cannot tell episodes' returns")
        if self.online_steps and (self.env_id is None or self.dataset is None):
            raise ValueError("online_steps follow on a dataset, in an environment: give dataset and env_id")
        if self.early_stopping is not None and self.eval_interval == 0:
            raise ValueError("early_stopping counts evaluations, so eval_interval must be at least 1, got 0")
        return self


def lift_dataset(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """These values with a dataset among the algorithm's options moved to its own key."""
    options = values.get("algo_kwargs")
    if not isinstance(options, Mapping) or not {"dataset", *EXPERT_KEYS} & options.keys():
        return dict(values)
    sources = {
        "dataset": values.get("dataset"), "algo_kwargs.dataset": options.get("dataset"),
        "algo_kwargs.expert_dataset_*": expert_dataset(**{key: options.get(name) for name, key in EXPERT_KEYS.items()}),
    }  # fmt: skip
    given = [name for name, source in sources.items() if source is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} are both given; keep one")
    rest = {name: value for name, value in options.items() if name != "dataset" and name not in EXPERT_KEYS}
    return {**values, "algo_kwargs": rest, "dataset": sources[given[0]] if given else None}


def parse_config(values: object) -> TrainConfig:
    """A checked config with every option of its algorithm filled in; ConfigError has a line for each mistake."""
    if isinstance(values, TrainConfig):
        values = values.model_dump()
    if not isinstance(values, Mapping):
        raise ConfigError(f"a config must be a mapping, got {shown(values)}")
    values = lift_dataset(values)
    options_type, mistakes = _options_type(values.get("algo"))
    known = partial(_known_keys, [] if options_type is None else list(options_type.model_fields))

    config, found = _validated(TrainConfig, values, known)
    mistakes += found
    options = None
    if options_type is not None and isinstance(values.get("algo_kwargs", {}), Mapping):
        options, found = _validated(options_type, values.get("algo_kwargs", {}), known, section=("algo_kwargs",))
        mistakes += found
    if config is None or options is None:
        raise ConfigError("\n".join(mistakes))
    return config.model_copy(update={"algo_kwargs": options.model_dump(mode="json")})


def _options_type(algo: object) -> tuple[type[BaseModel] | None, list[str]]:
    """The algorithm's config class, or what is wrong with its name."""
    from rl_training.experiment.config import registry  # which imports torch

    names = registry.algorithm_names()
    if algo in names:
        return registry.config_type(str(algo)), []
    if not isinstance(algo, str) or not algo:
        return None, []  # TrainConfig's own check has the words for it
    hint = did_you_mean(algo, {name: name for name in names})
    return None, [f"algo: must be one of {', '.join(names)}, got {shown(algo)}{hint}"]


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(
    model: type[_Model], values: Mapping[Any, Any], known: KnownKeys, *, section: KeyPath = ()
) -> tuple[_Model | None, list[str]]:
    try:
        return model.model_validate(dict(values)), []
    except ValidationError as error:
        return None, describe(error, values, known, section=section)


def _known_keys(options: list[str], section: KeyPath) -> dict[str, str]:
    """Every key that could have been meant in this section, and how to write it there."""
    nested: dict[str | int, tuple[type[BaseModel], ...]] = {
        "dataset": (DatasetRecipe,) if len(section) == 1 else (RecipePart, FilePart),
        "rewards": (RewardTransform,),
        "early_stopping": (EarlyStopping,),
        "schedules": (Schedule,),
    }
    if section and section[0] in nested:
        return {key: key for model in nested[section[0]] for key in model.model_fields}
    own = {key: key for key in TrainConfig.model_fields}
    if not section:
        return {**{option: f"algo_kwargs.{option}" for option in options}, **own}
    return {**{key: f"{key}, at the top level" for key in own}, **{option: option for option in options}}


def apply_overrides(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """These values with KEY=VALUE set in order; a KEY that is none of TrainConfig's is an option of the algorithm."""
    changed: dict[str, Any] = lift_dataset(copy.deepcopy(dict(values)))
    for assignment in assignments:
        key, text = key_and_value(assignment, what="an override")
        path = key.split(".")
        try:
            value = read_yaml(text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        _set(changed, path if path[0] in TrainConfig.model_fields else ["algo_kwargs", *path], value)
    return lift_dataset(changed)


def _set(values: dict[str, Any], path: list[str], value: Any) -> None:
    *sections, last = path
    for depth, section in enumerate(sections, 1):
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            whole = ".".join(path[:depth])
            raise ConfigError(f"{'.'.join(path)}: {whole} is not a mapping, got {whole} = {shown(values)}")
    values[last] = value


def config_differences(a: TrainConfig, b: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """The dotted keys whose values differ, with both values; where a run is written does not count."""
    ignored = {"output_dir"}
    return _differences(a.model_dump(mode="json", exclude=ignored), b.model_dump(mode="json", exclude=ignored))


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys([*a, *b]):
        mine, theirs = a.get(key), b.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found |= _differences(mine, theirs, f"{prefix}{key}.")
        elif mine != theirs:
            found[prefix + key] = (mine, theirs)
    return found


def config_yaml(config: TrainConfig) -> str:
    """The whole config as text that reads back to an equal one."""
    return write_yaml(config.model_dump(mode="json"))
