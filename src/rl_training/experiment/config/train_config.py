"""TrainConfig, and how it is read from a mapping, a file or the command line."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, PrivateAttr, model_validator

from rl_training.experiment.config import dataset_config, messages, other_libraries
from rl_training.experiment.config.dataset_config import ActionRange, Dataset, DatasetRecipe, Faults, RewardTransform
from rl_training.experiment.config.fields import (
    CallbackNames,
    Count,
    CountOrAuto,
    CountOrZero,
    EarlyStopping,
    Location,
    Name,
    Section,
    Trackers,
    Wrappers,
)
from rl_training.experiment.config.known_keys import algorithms_with, known_keys
from rl_training.experiment.config.messages import ConfigError, shown
from rl_training.experiment.config.packaged import load_config
from rl_training.experiment.config.sections import SECTION, lift_network, with_backend
from rl_training.experiment.config.yaml_text import read_yaml, write_yaml
from rl_training.modules import module_in
from rl_training.schedules import Schedule

if TYPE_CHECKING:
    from rl_training.algorithms import AlgorithmConfig
    from rl_training.envs.creation.given import Given
    from rl_training.envs.creation.making import EnvFactory

__all__ = [
    "ConfigError", "TrainConfig", "apply_overrides", "config_yaml", "load_config", "parse_config",
    "parse_stored_config",
]  # fmt: skip


def _device(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", value):
        raise ValueError(f"must be auto, cpu, cuda or cuda:N, got {shown(value)}")
    return value


def _switch(value: Any) -> Any:
    return ("on" if value else "off") if isinstance(value, bool) else value  # `on` in YAML 1.1


class TrainConfig(Section):
    """Config of one training run. `algo_kwargs` holds the options of the algorithm."""

    algo: Name = Field(description="algorithm")
    env_id: Name | None = Field(
        None, description="environment: Gymnasium id, module:id or module:Class; none: learn from the dataset alone"
    )
    seed: CountOrZero = Field(0, description="random seed of the run")
    total_timesteps: Count = Field(100_000, description="gradient steps offline, environment steps online")
    output_dir: Location | None = Field(None, description="run directory; none: runs/<algo>-<env>-s<seed>")
    device: Annotated[str, BeforeValidator(_device)] = Field("auto", description="auto, cpu, cuda or cuda:N")
    num_envs: Count = Field(1, description="parallel environments")
    env_backend: Literal["gymnasium", "device"] = Field(
        "gymnasium", description="device: environments as batched PyTorch, on the device of the networks"
    )
    env_workers: CountOrAuto = Field(
        "auto", description="worker processes for the environments of all seeds; 0: none; auto: for slow environments"
    )
    max_env_restarts: CountOrZero = Field(
        20, description="worker processes that may die and be replaced before the run stops with an error"
    )
    eval_episodes: Count = Field(10, description="episodes per evaluation")
    eval_max_steps: Count = Field(
        1_000_000, description="steps after which an evaluation episode is cut, with a warning"
    )
    eval_stochastic: bool = Field(
        False, description="sample actions in evaluations instead of taking the deterministic ones"
    )
    eval_interval: CountOrZero | None = Field(
        None, description="steps between evaluations; none: a tenth of the run; 0: never"
    )
    log_interval: Count | None = Field(None, description="steps between log entries; none: a hundredth of the run")
    checkpoint_interval: Count | None = Field(None, description="steps between checkpoints; none: a tenth of the run")
    keep_checkpoints: Count = Field(3, description="number of newest checkpoints to keep, besides the best")
    algo_kwargs: dict[str, Any] = Field({}, description="options of the algorithm")
    env_kwargs: dict[str, JsonValue] = Field({}, description="keyword arguments of the environment")
    env_wrappers: Wrappers = Field(
        (), description="wrappers of the environment, innermost first: module:Wrapper, or {wrapper: ..., option: value}"
    )
    dataset: Dataset | None = Field(None, description="dataset file or recipe, or a list of them")
    dataset_episodes: Count | None = Field(None, description="use the first N episodes of each source; none: all")
    dataset_stride: Count = Field(1, description="use every Nth transition of an episode")
    dataset_columns: dict[str, dataset_config.ColumnPattern] = Field(
        {}, description="column name here: column name in the file"
    )
    action_range: ActionRange | None = Field(
        None, description="[low, high] of the Box actions in the file, or in place of infinite bounds of an environment"
    )
    allow: Faults = Field(
        (), description="data faults to repair instead of failing: nan, out_of_range, no_episode_end, crossing"
    )
    table: dataset_config.TableOptions = Field(
        dataset_config.TableOptions(), description="how to read tables: csv_dialect, categories, max_gap"
    )
    rewards: RewardTransform = Field(RewardTransform(), description="transform of the rewards in the dataset")
    online_steps: CountOrZero = Field(0, description="environment steps of online fine-tuning")
    offline_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="fraction of a batch sampled from the dataset during online fine-tuning"
    )
    updates_per_step: Count = Field(1, description="updates per environment step during online fine-tuning")
    schedules: dict[str, Schedule] = Field({}, description="options that change during training, such as learning_rate")
    max_updates: Count | None = Field(None, description="stop after N updates")
    max_epochs: Count | None = Field(None, description="stop after N passes over the dataset")
    early_stopping: EarlyStopping | None = Field(None, description="stop when evaluations no longer improve")
    callbacks: CallbackNames = Field(
        (), description="callbacks: module:Callback, or {callback: module:Callback, option: value}"
    )
    log: Trackers = Field(
        ("tensorboard",), description="trackers besides metrics.jsonl: tensorboard, wandb, mlflow, none"
    )
    record_video_interval: CountOrZero = Field(0, description="steps between videos of an evaluation episode; 0: none")
    threads: Count | None = Field(None, description="CPU threads for PyTorch; none: 1 to 4, by timing")
    compile: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = Field(
        "auto", description="torch.compile: auto (long runs, by timing), on or off"
    )
    overlap_updates: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = Field(
        "auto", description="run updates while the environments step: auto (on a GPU), on or off"
    )

    _given: Given | None = PrivateAttr(None)  # an environment given in Python, which no file can hold

    def with_given(self, given: Given) -> TrainConfig:
        """Returns a copy that creates its environments from `given`; files and comparisons ignore it."""
        copied = self.model_copy()
        copied._given = given
        return copied

    @property
    def given(self) -> Given | None:
        return self._given

    def environment(self) -> EnvFactory | None:
        """Returns how to create the environments of the run, or None without any."""
        from rl_training.envs.creation.making import EnvFactory  # imports gymnasium

        if self._given is not None:
            return replace(self._given.source(), action_range=self.action_range)
        if self.env_id is None:
            return None
        return EnvFactory(self.env_id, self.env_kwargs, self.env_wrappers, self.env_id, self.action_range)

    def options(self) -> AlgorithmConfig:
        """Returns the options of the algorithm."""
        from rl_training.experiment.config import registry  # imports torch

        return registry.get_algorithm_spec(self.algo).config_type(**self.algo_kwargs)

    @property
    def duration(self) -> int:
        """Offline and online steps of the run together."""
        return self.total_timesteps + self.online_steps

    @model_validator(mode="before")
    @classmethod
    def _lift_dataset(cls, values: Any) -> Any:
        return dataset_config.lift_dataset(values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        parts = self.dataset if isinstance(self.dataset, tuple) else (self.dataset,)
        if self.env_id is None and any(isinstance(part, DatasetRecipe) and part.env_id is None for part in parts):
            raise ValueError("env_id is required: a dataset recipe is collected in an environment")
        bounds = () if self.dataset is None else ("action_range",)
        reading = {name: getattr(self, name) for name in ("dataset_columns", "allow", "table", *bounds)}
        dataset_config.require_file(self.dataset, reading)
        dataset_config.require_weights(self.dataset)
        if self.dataset_stride > 1 and self.rewards.normalize != "none":
            raise ValueError("rewards.normalize needs every reward of an episode, so dataset_stride must be 1")
        has_workers = self.env_workers not in (0, "auto")
        if self.env_backend == "device" and (has_workers or self.env_wrappers):
            option = "env_workers" if has_workers else "env_wrappers"
            raise ValueError(f"env_backend: device runs its environments without {option}; remove it")
        if self.online_steps and (self.env_id is None or self.dataset is None):
            raise ValueError("online_steps need a dataset and an environment: give dataset and env_id")
        if self.early_stopping is not None and self.eval_interval == 0:
            raise ValueError("early_stopping needs evaluations: eval_interval must be at least 1, got 0")
        return self


def parse_config(values: object) -> TrainConfig:
    """Validates a config and fills in every option of its algorithm; ConfigError has a line for each error."""
    given = values.given if isinstance(values, TrainConfig) else None
    if isinstance(values, TrainConfig):
        values = values.model_dump()
    if not isinstance(values, Mapping):
        raise ConfigError(f"a config must be a mapping, got {shown(values)}")
    values = with_backend(lift_network(dataset_config.lift_dataset(values)))
    options_type, errors = _options_type(values.get("algo"))
    hints: dict[str, Any] = {"known": partial(known_keys, list(TrainConfig.model_fields), options_type)}
    if options_type is not None:
        hints["elsewhere"] = partial(algorithms_with, algo=values["algo"])

    config, found = messages.checked(TrainConfig, values, **hints)
    errors += found
    options = None
    if options_type is not None and isinstance(values.get("algo_kwargs", {}), Mapping):
        options, found = messages.checked(
            options_type, values.get("algo_kwargs", {}), section=("algo_kwargs",), **hints
        )
        errors += found
    if config is None or options is None:
        raise ConfigError("\n".join(errors))
    parsed = config.model_copy(update={"algo_kwargs": options.model_dump(mode="json")})
    return parsed if given is None else parsed.with_given(given)


def parse_stored_config(values: Mapping[str, Any]) -> TrainConfig:
    """Parses the config of a run, whose algorithm another process may have registered."""
    from rl_training.experiment.config import registry  # imports torch

    algo = values.get("algo")
    if isinstance(algo, str) and algo and module_in(algo) is None and algo not in registry.algorithm_names():
        raise ConfigError(
            f"algo: no algorithm {shown(algo)} in this process. If a script adds it with register_algorithm, open "
            "the run in Python after that call. For the command line, train with module:Class as the algorithm, or "
            "let a package declare the name (docs/extend.md)"
        )
    return parse_config(values)


def _options_type(algo: object) -> tuple[type[AlgorithmConfig] | None, list[str]]:
    from rl_training.experiment.config import registry  # imports torch

    names = registry.algorithm_names()
    if not isinstance(algo, str) or not algo:
        return None, []  # TrainConfig reports it
    if algo in names or module_in(algo) is not None:
        return registry.get_algorithm_spec(algo).config_type, []
    hint = other_libraries.algorithm_here(algo) or messages.similar_key(algo, names)
    return None, [f"algo: must be one of {', '.join(names)} or module:Class, got {shown(algo)}{hint}"]


def apply_overrides(values: Mapping[str, Any], assignments: Iterable[str], **options: Any) -> dict[str, Any]:
    """Applies options, then KEY=VALUE in order; a KEY that TrainConfig does not have is an option of the algorithm."""
    given = list(assignments)
    changed = _assigned({**values, **options}, given)
    if SECTION in changed and changed.get("env_backend") == "device":  # options and KEY=VALUE override the section
        changed = _assigned({**with_backend({**values, "env_backend": "device"}), **options}, given)
    return changed


def _assigned(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    changed: dict[str, Any] = lift_network(dataset_config.lift_dataset(copy.deepcopy(dict(values))))
    for assignment in assignments:
        key, text = messages.key_and_value(assignment, what="an override")
        path = key.split(".")
        try:
            value = read_yaml(text)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from None
        _set(changed, path if path[0] in TrainConfig.model_fields else ["algo_kwargs", *path], value)
    return dataset_config.lift_dataset(changed)


def _set(values: dict[str, Any], path: list[str], value: Any) -> None:
    *sections, last = path
    for depth, section in enumerate(sections, 1):
        if values.get(section) is None:
            values[section] = {}
        elif section == "network" and isinstance(values[section], str):
            values[section] = {"kind": values[section]}  # a word is short for its kind
        values = values[section]
        if not isinstance(values, dict):
            whole = ".".join(path[:depth])
            raise ConfigError(f"{'.'.join(path)}: {whole} is not a mapping, got {whole} = {shown(values)}")
    values[last] = value


def config_yaml(config: TrainConfig) -> str:
    return write_yaml(config.model_dump(mode="json"))
