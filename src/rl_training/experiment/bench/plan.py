"""A bench on paper: algorithms by environments or datasets by seeds, and the cells that this makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from rl_training.experiment.config.fields import Count, CountOrZero, Name
from rl_training.experiment.config.messages import describe
from rl_training.experiment.config.train_config import (
    ConfigError,
    TrainConfig,
    apply_overrides,
    load_config,
    parse_config,
)
from rl_training.experiment.config.yaml_text import read_yaml, write_yaml

PLAN = "bench.yaml"


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Names = Annotated[list[Name], BeforeValidator(_listed)]


class BenchPlan(BaseModel):
    """What is compared on what. Every algorithm and config meets every environment and every dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algos: Names = Field([], description="algorithms, with their defaults")
    configs: Names = Field([], description="packaged configs or yaml files")
    envs: Names = Field([], description="environments; none: those of the configs")
    datasets: Names = Field([], description="files to learn from; none: those of the configs")
    seeds: list[CountOrZero] = Field([0, 1, 2, 3, 4], min_length=1, description="of every cell")
    steps: Count | None = Field(None, description="of every run; none: what its config says")
    episodes: Count = Field(50, description="that the last checkpoint of each run plays for its score")
    set: dict[str, JsonValue] = Field({}, description="keys of the config or options of the algorithm")

    def cells(self) -> list[Cell]:
        learners = [*self.algos, *self.configs]
        envs: list[str | None] = [*self.envs] or [None]
        datasets: list[str | None] = [*self.datasets] or [None]
        return [Cell(*each) for each in product(learners, envs, datasets)]

    def overrides(self) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in self.set.items()]


class Cell(NamedTuple):
    """An algorithm or config on one environment or dataset, with all seeds."""

    learner: str
    env: str | None
    dataset: str | None

    @property
    def name(self) -> str:
        """Also of its folder."""
        parts = [_short(self.learner), self.env, None if self.dataset is None else _short(self.dataset)]
        return "-".join(part.replace("/", "-") for part in parts if part is not None)

    def config(self, plan: BenchPlan) -> TrainConfig:
        """What `train` will make of it; a mistake is found here, before anything runs."""
        values = load_config(self.learner) if self.learner in plan.configs else {"algo": self.learner}
        given = {"env_id": self.env, "dataset": self.dataset, "total_timesteps": plan.steps}
        chosen = {key: value for key, value in given.items() if value is not None}
        try:
            config = parse_config(apply_overrides({**values, **chosen}, plan.overrides()))
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        if config.env_id is None:
            raise ConfigError(f"{self.name}: a score needs an environment to play in; name it in envs")
        return config

    def train_command(self, plan: BenchPlan, output: str) -> list[str]:
        """The words after `rl-training`."""
        env = [] if self.env is None else [self.env]
        dataset = [] if self.dataset is None else ["--dataset", self.dataset]
        steps = [] if plan.steps is None else ["--steps", str(plan.steps)]
        changes = [word for override in plan.overrides() for word in ("--set", override)]
        seeds = ",".join(map(str, plan.seeds))
        return ["train", self.learner, *env, *dataset, *steps, *changes, "--seeds", seeds, "--output", output]


def _short(name: str) -> str:
    """A packaged config keeps its name, a file its stem."""
    is_file = Path(name).suffix in (".yaml", ".yml", ".npz", ".h5", ".hdf5", ".parquet", ".csv")
    return Path(name).stem if is_file else name


def parse_plan(values: Mapping[str, Any]) -> BenchPlan:
    """A checked plan whose cells all have a name of their own; ConfigError has a line for each mistake."""
    try:
        plan = BenchPlan.model_validate(dict(values))
    except ValidationError as error:
        known = {key: key for key in BenchPlan.model_fields}
        raise ConfigError("\n".join(describe(error, values, lambda section: known))) from None
    if not plan.algos and not plan.configs:
        raise ConfigError("a bench needs algos or configs to run")
    if plan.algos and not plan.envs:
        raise ConfigError("algos need envs to run in; only configs bring their own")
    twice = [name for name, count in Counter(cell.name for cell in plan.cells()).items() if count > 1]
    if twice:
        raise ConfigError(f"two cells would be called {twice[0]}; name each algorithm, environment and file once")
    if len({*plan.seeds}) < len(plan.seeds):
        raise ConfigError(f"seeds must name each seed once, got {plan.seeds}")
    return plan


def read_plan(directory: Path) -> BenchPlan:
    """The plan that a bench directory holds."""
    file = directory / PLAN
    if not file.is_file():
        if not directory.exists():
            raise FileNotFoundError(f"there is no bench at {directory}")
        raise FileNotFoundError(f"{directory} is not a bench: it has no {PLAN}; name a directory that bench wrote")
    return parse_plan(read_yaml(file.read_text(encoding="utf-8")))


def plan_yaml(plan: BenchPlan) -> str:
    """The whole plan as text that reads back to an equal one."""
    return write_yaml(plan.model_dump(mode="json"))


def plan_differences(a: BenchPlan, b: BenchPlan) -> dict[str, tuple[Any, Any]]:
    mine, theirs = a.model_dump(mode="json"), b.model_dump(mode="json")
    return {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}
