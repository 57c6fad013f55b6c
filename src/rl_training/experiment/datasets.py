"""Loads the dataset of a config: files, recipes and mixtures, with its reward transform."""

from collections.abc import Mapping
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
from rl_training.runtime.checkpoints.reading import Checkpoint
from rl_training.runtime.lanes import ModelBasedLane
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import roll_dataset


class RewardChange(NamedTuple):
    """A reward transform with its numbers resolved; it also applies to online rewards after an offline phase."""

    scale: float = 1.0
    shift: float = 0.0
    clip: tuple[float, float] | None = None

    def apply(self, rewards: Tensor) -> Tensor:
        return transform_rewards(rewards, *self)


def load_run_dataset(
    config: TrainConfig, start: Checkpoint | None
) -> tuple[TransitionDataset | None, RewardChange, str | None]:
    """Returns the dataset of a run with its reward transform and fingerprint, which must be that of `start`."""
    dataset, change = _load(config, resumes=start is not None)
    fingerprint = None if dataset is None else dataset.fingerprint()
    if start is not None:
        require_same_data(fingerprint, start.info, start.path)
    return dataset, change, fingerprint


def _load(config: TrainConfig, *, resumes: bool) -> tuple[TransitionDataset | None, RewardChange]:
    """Returns the dataset of an offline run or of an expert; refuses options that the run does not have."""
    algo, needs_expert = config.algo, get_algorithm_spec(config.algo).learner.needs_expert
    if not lane_of(config).offline:
        if config.rewards != RewardTransform():
            raise ConfigError(f"{algo} trains online and takes no reward transform of a dataset; leave out rewards")
        if not needs_expert and config.dataset is not None:
            raise ConfigError(f"{algo} trains online and takes no dataset; leave it out")
        if not needs_expert:
            return None, RewardChange()
        if isinstance(config.dataset, tuple) and config.dataset[0].weight is not None:
            raise ConfigError(f"{algo} samples the transitions of its experts uniformly; leave out the weights")
    if not resumes:  # older versions have started such runs, which must resume
        check_phases(config)
    return load_dataset(config)


def require_same_data(fingerprint: str | None, record: Mapping[str, Any], path: Path) -> None:
    """Raises ConfigError if the fingerprint is not that of a checkpoint or run, which has this `record`."""
    if fingerprint == record.get("dataset"):
        return
    version = record.get("versions", {}).get("rl-training")
    raise ConfigError(
        f"the dataset or its rewards differ from those of {path}, or the version of rl-training that wrote it"
        f"{f' ({version})' if version else ''} reads the file differently; restore them, use that version, or train a "
        "new agent"
    )


def load_dataset(config: TrainConfig) -> tuple[TransitionDataset, RewardChange]:
    """Returns the dataset after its reward transform, with Box actions in [-1, 1], and the transform."""
    _check_targets(config)
    dataset, rewards = with_run_time(config, _read(config)), config.rewards
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


def _read(config: TrainConfig) -> TransitionDataset:
    if config.dataset is None:
        raise ConfigError(_missing(config.algo))
    if not isinstance(config.dataset, tuple):
        return _one_source(config, config.dataset)
    weights = [part.weight for part in config.dataset if part.weight is not None]
    parts = [_one_source(config, part) for part in config.dataset]
    dataset = mix_transition_datasets(parts, weights or None)
    dataset.dropped_terminals = sum(part.dropped_terminals for part in parts)
    dataset.notes = tuple(note for part in parts for note in part.notes)
    return dataset


def _missing(algo: str) -> str:
    needed, recipe = "trains offline and needs a dataset", "{kind: random, rows: 50000}"
    if get_algorithm_spec(algo).learner.needs_expert:
        needed, recipe = "needs an expert's dataset", "{kind: policy, policy: RUN, rows: 5000}"
    return f"{algo} {needed}; give --dataset FILE or a recipe, for example dataset: {recipe}"


def _one_source(config: TrainConfig, source: str | DatasetRecipe | FilePart) -> TransitionDataset:
    whole = roll_recipe(config, source) if isinstance(source, DatasetRecipe) else _from_file(config, source)
    if config.dataset_episodes is None and config.dataset_stride == 1:
        return whole
    count = len(whole.episode_offsets)
    if config.dataset_episodes is not None and config.dataset_episodes > count:
        raise ConfigError(f"dataset_episodes must be at most {count}, as its source has, got {config.dataset_episodes}")
    part = whole.subsample(episodes=config.dataset_episodes, stride=config.dataset_stride)
    part.notes = whole.notes
    return part


def _from_file(config: TrainConfig, source: str | FilePart) -> TransitionDataset:
    dataset = load_transition_dataset(
        source if isinstance(source, str) else source.source,
        spec=None if (env := config.environment()) is None else spec_of(env),
        columns=reading_columns(config), action_range=config.action_range, allow=config.allow,
        **config.table.model_dump(),
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
