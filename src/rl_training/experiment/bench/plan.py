"""The plan of a bench: algorithms x environments x datasets x seeds, and the cells that result."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from rl_training.experiment.config.differences import Differences
from rl_training.experiment.config.fields import Count, CountOrZero, Location, Name
from rl_training.experiment.config.messages import ConfigError, validated
from rl_training.experiment.config.train_config import TrainConfig, apply_overrides, load_config, parse_config
from rl_training.experiment.config.yaml_text import write_yaml
from rl_training.experiment.trust import learner_modules
from rl_training.modules import approve

PLAN = "bench.yaml"
EVALUATION_SEED = 12345  # shared by all compared scores; no training uses it
SCORING = ("score", "episodes", "test", "updates", "gamma")  # keys of the scores; runs do not depend on them
FILES = (".yaml", ".yml", ".npz", ".h5", ".hdf5", ".parquet", ".csv")


def _listed(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Names = Annotated[list[Name], BeforeValidator(_listed)]


class BenchPlan(BaseModel):
    """Combines every algorithm and config with every environment and every dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algos: Names = Field([], description="algorithms with default options")
    configs: Names = Field([], description="packaged configs or yaml files")
    envs: Names = Field([], description="environment ids; none: those of the configs")
    datasets: Names = Field([], description="dataset files; none: those of the configs")
    seeds: list[CountOrZero] = Field([0, 1, 2, 3, 4], min_length=1, description="random seeds of every cell")
    steps: Count | None = Field(None, description="steps of every run; none: total_timesteps of its config")
    episodes: Count = Field(50, description="evaluation episodes of the last checkpoint of each run")
    score: Literal["episodes", "ope"] = Field(
        "episodes", description="episodes: returns of evaluation episodes; ope: off-policy estimates from test data"
    )
    test: Location | None = Field(None, description="test data of score: ope; use episodes that no cell trains on")
    updates: Count | None = Field(None, description="updates of each off-policy estimate; none: 10,000")
    gamma: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="discount of the off-policy estimates; none: 0.99"
    )
    set: dict[str, JsonValue] = Field({}, description="config keys or algorithm options")

    def cells(self) -> list[Cell]:
        learners = [*self.algos, *self.configs]
        envs: list[str | None] = [*self.envs] or [None]
        datasets: list[str | None] = [*self.datasets] or [None]
        short, files = short_names(learners), short_names(self.datasets)
        return [
            Cell(learner, env, dataset, cell_name(short[learner], env, dataset and files[dataset]))
            for learner, env, dataset in product(learners, envs, datasets)
        ]

    def overrides(self) -> list[str]:
        return [f"{key}={json.dumps(value)}" for key, value in self.set.items()]


class Cell(NamedTuple):
    """One algorithm or config on one environment and dataset, with all seeds."""

    learner: str
    env: str | None
    dataset: str | None
    name: str

    def config(self, plan: BenchPlan) -> TrainConfig:
        """The config that `train` will use; checked here, before any run starts."""
        values = load_config(self.learner) if self.learner in plan.configs else {"algo": self.learner}
        given = {"env_id": self.env, "dataset": self.dataset, "total_timesteps": plan.steps}
        chosen = {key: value for key, value in given.items() if value is not None}
        try:
            merged = apply_overrides({**values, **chosen}, plan.overrides())
            approve(learner_modules(merged))
            config = parse_config(merged)
        except ConfigError as error:
            foreign = str(error).endswith("unknown key") and plan.set
            hint = "; --set is for all cells, so write options of one algorithm to a file and name it in --configs"
            raise ConfigError(f"{self.name}: {error}{hint if foreign else ''}") from None
        if config.env_id is None and plan.score == "episodes":
            raise ConfigError(
                f"{self.name}: an environment is needed to compute a score; name it in envs, or estimate the score "
                "from data with --score ope --test DATASET"
            )
        if config.env_id is None and config.dataset is None:
            raise ConfigError(f"{self.name}: a dataset is needed to train without an environment; name it in datasets")
        return config

    def train_command(self, plan: BenchPlan, output: str) -> list[str]:
        """The arguments after `rl-training`."""
        env = [] if self.env is None else [self.env]
        dataset = [] if self.dataset is None else ["--dataset", self.dataset]
        steps = [] if plan.steps is None else ["--steps", str(plan.steps)]
        changes = [word for override in plan.overrides() for word in ("--set", override)]
        seeds = ",".join(map(str, plan.seeds))
        return ["train", self.learner, *env, *dataset, *steps, *changes, "--seeds", seeds, "--output", output]


def cell_name(*parts: str | None) -> str:
    return "-".join(re.sub("[/:]", "-", part) for part in parts if part is not None)


def short_names(sources: Sequence[str]) -> dict[str, str]:
    """The stems of files, with as many parent folders as make them distinct; other names are unchanged."""
    found = {}
    for source in {*sources}:
        others = {*sources} - {source}
        depths = range(max(len(Path(each).parts) for each in sources))
        free = (depth for depth in depths if _short(source, depth) not in {_short(each, depth) for each in others})
        found[source] = source if (depth := next(free, None)) is None else _short(source, depth)
    return found


def _short(name: str, parents: int) -> str:
    """The stem of a file after its last `parents` folders; any other name unchanged."""
    path = Path(name)
    if path.suffix not in FILES:
        return name
    folders = path.parent.parts[::-1][:parents][::-1]
    return "/".join([*(folder for folder in folders if folder != path.anchor), path.stem])


def parse_plan(values: Mapping[str, Any]) -> BenchPlan:
    """Validates a plan and the uniqueness of its cell names; ConfigError has a line for each error."""
    plan = validated(BenchPlan, values)
    if not plan.algos and not plan.configs:
        raise ConfigError(
            "a bench needs algorithms or configs; give --algos or --configs, or algos or configs in a plan file"
        )
    _require_test_data(plan)
    if plan.algos and not plan.envs and plan.score == "episodes":
        raise ConfigError("algos need environments; give --envs, or envs in a plan file (configs name their own)")
    duplicates = [name for name, count in Counter(cell.name for cell in plan.cells()).items() if count > 1]
    if duplicates:
        raise ConfigError(f"two cells have the name {duplicates[0]}; give each algorithm, environment and file once")
    if len({*plan.seeds}) < len(plan.seeds):
        raise ConfigError(f"seeds must not repeat a seed, got {plan.seeds}")
    return plan


def _require_test_data(plan: BenchPlan) -> None:
    if plan.score == "ope" and plan.test is None:
        raise ConfigError("score ope needs test data; give --test DATASET, episodes that no cell trains on")
    for name in ("test", "updates", "gamma"):
        if plan.score != "ope" and getattr(plan, name) is not None:
            raise ConfigError(f"{name} is for off-policy estimates; add --score ope, or leave it out")


def read_plan(directory: Path) -> BenchPlan:
    file = directory / PLAN
    if not file.is_file():
        if not directory.exists():
            raise FileNotFoundError(f"no bench at {directory}: the directory does not exist")
        raise FileNotFoundError(f"{directory} is not a bench directory: it has no {PLAN}; run rl-training bench first")
    return parse_plan(load_config(str(file)))


def plan_yaml(plan: BenchPlan) -> str:
    return write_yaml(plan.model_dump(mode="json"))


def plan_differences(a: BenchPlan, b: BenchPlan) -> Differences:
    first, second = a.model_dump(mode="json"), b.model_dump(mode="json")
    return {key: (first[key], second[key]) for key in first if first[key] != second[key]}
