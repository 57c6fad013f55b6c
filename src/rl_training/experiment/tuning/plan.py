"""The plan of a study, stored as `tune.yaml`: config, search space, seeds, sampler. It is compared on every start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_training.experiment.config.differences import Differences, config_differences
from rl_training.experiment.config.fields import Count, CountOrZero
from rl_training.experiment.config.messages import ConfigError, validated
from rl_training.experiment.config.train_config import TrainConfig, load_config, parse_config
from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.experiment.trust import modules_of
from rl_training.experiment.tuning.space import SearchSpace, parse_search
from rl_training.modules import approve

PLAN = "tune.yaml"
FINAL_SEED, FINAL_SEEDS = 100, 5  # the first of the final seeds, and how many at least
EVALUATIONS = 10  # of a run, if the config does not choose


class TunePlan(BaseModel):
    """Everything that the trials of a study have in common. A study continues with the same plan only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any] = Field(description="the config of every trial, before its own values")
    search: dict[str, str] = Field(min_length=1, description="KEY: LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP or A,B,C")
    seeds: list[CountOrZero] = Field(min_length=1, description="random seeds of every trial")
    sampler: Literal["tpe", "random"] = Field("tpe", description="how values are suggested")
    sampler_seed: CountOrZero = Field(0, description="random seed of the suggestions")
    prune: bool = Field(True, description="stop trials that score below the median of the others")

    def space(self) -> SearchSpace:
        return parse_search(f"{key}={text}" for key, text in self.search.items())

    def train_config(self) -> TrainConfig:
        approve(modules_of(self.config))
        return parse_config(self.config)


class FinalPlan(BaseModel):
    """How the best config is scored. It may change when a study is continued."""

    model_config = ConfigDict(frozen=True)

    seeds: list[CountOrZero]
    episodes: Count = 50
    baseline: bool = True


def final_seeds(tuned: list[int], given: list[int] | None) -> list[int]:
    """The seeds that score the best config; none of them may be one that the trials were trained with."""
    if given is None:
        first = max(FINAL_SEED, max(tuned) + 1)
        return list(range(first, first + max(FINAL_SEEDS, len(tuned))))
    if shared := sorted({*given} & {*tuned}):
        raise ConfigError(
            f"--final-seeds must be other seeds than --seeds, because the trials were chosen by those; "
            f"{', '.join(map(str, shared))} {'is' if len(shared) == 1 else 'are'} in both"
        )
    return given


def with_evaluations(config: TrainConfig) -> int | None:
    """The interval of evaluations to set if the config has none; raises ConfigError if it cannot be evaluated."""
    if config.env_id is None:
        raise ConfigError(
            "tuning maximises the return of evaluations, which need an environment: name it after the algorithm, "
            "or set env_id"
        )
    return max(1, config.duration // EVALUATIONS) if config.eval_interval == 0 else None


def parse_plan(values: Mapping[str, Any]) -> TunePlan:
    return validated(TunePlan, values)


def read_plan(directory: Path) -> TunePlan:
    return parse_plan(load_config(str(directory / PLAN)))


def plan_yaml(plan: TunePlan) -> str:
    return write_yaml(plan.model_dump(mode="json"))


def plan_differences(there: TunePlan, here: TunePlan) -> Differences:
    """Keys that differ, and both values. Configs are compared as they are used, with all their defaults."""
    first, second = (_flat(plan) for plan in (there, here))
    changed = {key: (first.get(key), second.get(key)) for key in first | second if first.get(key) != second.get(key)}
    return changed | config_differences(there.train_config(), here.train_config())


def _flat(plan: TunePlan) -> dict[str, Any]:
    values = plan.model_dump(mode="json", exclude={"config", "search"})
    return {**values, **{f"search {key}": text for key, text in plan.search.items()}}
