"""Loads the dataset of a config: files, recipes and mixtures, with its reward transform."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from rl_training.algorithms import Learner
from rl_training.data import TransitionDataset, load_transition_dataset, mix_transition_datasets
from rl_training.data.datasets.durations import DURATIONS, TIME
from rl_training.data.datasets.next_actions import with_next_actions
from rl_training.data.datasets.tensors import transform_rewards
from rl_training.data.datasets.validation import DatasetError
from rl_training.envs.creation.making import EnvFactory, spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.dataset_config import DatasetRecipe, FilePart, RewardTransform
from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, TrainConfig
from rl_training.experiment.lanes import lane_of
from rl_training.messages import Warn
from rl_training.runtime.lanes import ModelBasedLane
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec

# Timestamps in text: as now, then as earlier versions recognised them, which first did so in CSV files only.
TIMES: tuple[dict[str, Any], ...] = ({}, {"text_times": "iso"}, {"text_times": False})
READ_BEFORE = (*TIMES, *({**times, "choices": False} for times in TIMES))  # earlier versions read such integers as Box
# Earlier versions dropped terminal rows without an action, and with them the end of the episode.
ENDS: tuple[dict[str, Any], ...] = ({}, {"final_rows": False})
USES = ({"one_use": False, **ends} for ends in ENDS)  # earlier versions used a column twice
READINGS = (*({**reading, **ends} for ends in ENDS for reading in READ_BEFORE), *USES)
DECIMALS = tuple({**reading, "decimals": False} for reading in READINGS)  # earlier versions ignored other decimals


class RewardChange(NamedTuple):
    """A reward transform with its numbers resolved; it also applies to online rewards after an offline phase."""

    scale: float = 1.0
    shift: float = 0.0
    clip: tuple[float, float] | None = None

    def apply(self, rewards: Tensor) -> Tensor:
        return transform_rewards(rewards, *self)


def load_run_dataset(
    config: TrainConfig, start: Mapping[str, Any] | None, recorded: str | None = None
) -> tuple[TransitionDataset | None, RewardChange, str | None]:
    """Returns the dataset of a run with its reward transform and fingerprint; `start` describes a run to resume.

    If it differs from the one that `start` has, or that the run has `recorded`, it is read as by earlier versions.
    """
    like = None if start is None else EnvSpec.from_json(start["spec"])
    recorded = recorded if start is None else start.get("dataset")
    has_decimals = ".parquet" in str(config.dataset)  # other formats have none
    for reading in () if recorded is None else (*READINGS, *(DECIMALS if has_decimals else ())):
        with suppress(TypeError, ValueError):  # this version may refuse what an earlier one has ignored
            dataset, change = _load(config, like, **reading)
            if dataset is not None and dataset.fingerprint() == recorded:
                return dataset, change, recorded
    dataset, change = _load(config, like)
    return dataset, change, None if dataset is None else dataset.fingerprint()


def _load(config: TrainConfig, like: EnvSpec | None, **reading: Any) -> tuple[TransitionDataset | None, RewardChange]:
    """Returns the dataset of an offline run or of an expert; refuses options that an online run does not have."""
    algo, needs_expert = config.algo, get_algorithm_spec(config.algo).learner.needs_expert
    if lane_of(config).offline:
        return load_dataset(config, like, **reading)
    if config.rewards != RewardTransform():
        raise ConfigError(f"{algo} trains online and takes no reward transform of a dataset; leave out rewards")
    if not needs_expert:
        if config.dataset is not None:
            raise ConfigError(f"{algo} trains online and takes no dataset; leave it out")
        return None, RewardChange()
    if isinstance(config.dataset, tuple) and config.dataset[0].weight is not None:
        raise ConfigError(f"{algo} samples the transitions of its experts uniformly; leave out the weights")
    return load_dataset(config, like, **reading)


def load_dataset(
    config: TrainConfig, like: EnvSpec | None = None, **reading: Any
) -> tuple[TransitionDataset, RewardChange]:
    """Returns the dataset after its reward transform, with Box actions in [-1, 1], and the transform.

    `like` has the categories and the first action of the data, where they are known; `reading` are further options of
    `load_transition_dataset`.
    """
    _check_targets(config)
    if like is None:  # older versions have started such runs, which must resume
        check_phases(config)
    dataset, rewards = with_run_time(config, _read(config, like, **reading)), config.rewards
    normal = dataset.return_range_scale() if rewards.normalize == "return_range" else 1.0
    change = RewardChange(normal * rewards.scale, rewards.shift, rewards.clip)
    return (dataset if change == RewardChange() else dataset.with_reward_transform(*change)), change


def reading_columns(config: TrainConfig) -> dict[str, str]:
    """Names of the file's columns, with the time column of the option discount_time."""
    time, named = config.algo_kwargs.get("discount_time"), config.dataset_columns
    return {**named, TIME: time} if time and time not in (DURATIONS, *(named.keys() & {TIME})) else named


def with_run_time(config: TrainConfig, dataset: TransitionDataset) -> TransitionDataset:
    """Adds the time steps of the run's discounts if the option discount_time is set."""
    if config.algo_kwargs.get("discount_time") is None:
        return dataset
    return dataset.with_time_unit(config.algo_kwargs["time_unit"])


def _check_targets(config: TrainConfig) -> None:
    """Refuses options of TD targets that the run cannot follow."""
    options, is_offline = config.algo_kwargs, lane_of(config).offline
    given = {"n_step": options.get("n_step", 1) > 1, "discount_time": options.get("discount_time") is not None}
    for name in (name for name, is_given in given.items() if is_given and is_offline):
        if config.online_steps:
            raise ConfigError(f"{name} is for training on a dataset alone; set online_steps to 0 or leave it out")
        if name == "n_step" and config.dataset_stride > 1:
            raise ConfigError("n_step needs every row of an episode, so dataset_stride must be 1")


def check_phases(config: TrainConfig) -> None:
    """Refuses options of a phase that the run does not have."""
    if config.dataset_columns.get("discounts"):
        name, no_column = "dataset_columns.discounts", "transitions have no such column"
        if config.online_steps:
            only = f"{name} is for training on a dataset alone"
            raise ConfigError(f"{only}, because online {no_column}; set online_steps to 0 or leave it out")
        if issubclass(lane_of(config), ModelBasedLane):
            raise ConfigError(f"{name} has no effect with {config.algo}, because model {no_column}; leave it out")
    if not config.online_steps and config.algo_kwargs.get("cql_alpha_online") is not None:
        raise ConfigError("cql_alpha_online is for the online phase; add online_steps or leave it out")


def with_returns(
    config: TrainConfig, dataset: TransitionDataset, learner: Learner, *, resumes: bool, warn: Warn
) -> TransitionDataset:
    """Adds the discounts of uneven time steps, and the next actions and returns-to-go that the learner needs."""
    gamma, needed = learner.config.gamma, {column.name for column in learner.needs}
    dataset = dataset.with_discounts(gamma)
    if "next_actions" in needed - dataset.columns.keys():
        if config.dataset_stride > 1:
            raise ConfigError(f"{config.algo} needs next actions, which a dataset_stride above 1 makes impossible")
        dataset = with_next_actions(dataset)
    if "returns_to_go" not in needed:
        return dataset
    is_stored = "returns_to_go" in dataset.columns
    if config.dataset_stride > 1 and not (is_stored and resumes):
        raise ConfigError(f"{config.algo} needs returns-to-go, which a dataset_stride above 1 makes impossible")
    if is_stored:
        _check_returns(dataset, gamma, warn if resumes else None)
        return dataset
    if not resumes and (cut := len(dataset.episode_offsets) - int((dataset.columns["dones"] > 0).sum())):
        after = "end with the data" if gamma == 1 else "continue after it with the rewards of their episode"
        warn(f"{cut} of {len(dataset.episode_offsets)} episodes have no terminal end: their returns-to-go {after}")
    return dataset.with_discounted_returns_to_go(gamma)


def _check_returns(dataset: TransitionDataset, gamma: float, warn: Warn | None) -> None:
    """Refuses a stored column of other returns-to-go; a run that started with it is resumed with a warning."""
    try:
        dataset.require_returns_to_go(gamma)
    except DatasetError as error:
        if warn is None:
            raise
        warn(f"{error.text}; the run continues with the column that it started with")


def _read(config: TrainConfig, like: EnvSpec | None, **reading: Any) -> TransitionDataset:
    if config.dataset is None:
        raise ConfigError(_missing(config.algo))
    if not isinstance(config.dataset, tuple):
        return _one_source(config, config.dataset, like, **reading)
    weights = [part.weight for part in config.dataset if part.weight is not None]
    parts = [_one_source(config, part, like, **reading) for part in config.dataset]
    dataset = mix_transition_datasets(parts, weights or None)
    dataset.dropped_terminals = sum(part.dropped_terminals for part in parts)
    dataset.notes = tuple(note for part in parts for note in part.notes)
    return dataset


def _missing(algo: str) -> str:
    needed, recipe = "trains offline and needs a dataset", "{kind: random, rows: 50000}"
    if get_algorithm_spec(algo).learner.needs_expert:
        needed, recipe = "needs an expert's dataset", "{kind: policy, policy: RUN, rows: 5000}"
    return f"{algo} {needed}; give --dataset FILE or a recipe, for example dataset: {recipe}"


def _one_source(
    config: TrainConfig, source: str | DatasetRecipe | FilePart, like: EnvSpec | None, **reading: Any
) -> TransitionDataset:
    if isinstance(source, DatasetRecipe):
        whole = roll_recipe(config, source)
    else:
        whole = _from_file(config, source, like, **reading)
    if config.dataset_episodes is None and config.dataset_stride == 1:
        return whole
    count = len(whole.episode_offsets)
    if config.dataset_episodes is not None and config.dataset_episodes > count:
        raise ConfigError(f"dataset_episodes must be at most {count}, as its source has, got {config.dataset_episodes}")
    part = whole.subsample(episodes=config.dataset_episodes, stride=config.dataset_stride)
    part.notes = whole.notes
    return part


def _from_file(config: TrainConfig, source: str | FilePart, like: EnvSpec | None, **reading: Any) -> TransitionDataset:
    dataset = load_transition_dataset(
        source if isinstance(source, str) else source.source,
        spec=None if (env := config.environment()) is None else spec_of(env),
        columns=reading_columns(config), action_range=config.action_range, allow=config.allow, like=like,
        **config.table.model_dump(), **reading,
    )  # fmt: skip
    return dataset.for_training()


def roll_recipe(config: TrainConfig, recipe: DatasetRecipe) -> TransitionDataset:
    source = config.environment() if recipe.env_id is None else EnvFactory(recipe.env_id, config.env_kwargs)
    if source is None:
        raise ConfigError("a dataset recipe needs an environment; set env_id")
    policy = like = None
    if recipe.kind == "policy":
        agent = load_agent(Path(str(recipe.policy)))
        policy, like = SometimesRandom(agent.learner, agent.spec, recipe.epsilon), agent.spec
    return roll_dataset(source, rows=recipe.rows, seed=recipe.seed, policy=policy, like=like)
