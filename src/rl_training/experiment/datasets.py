"""Loads the dataset of a config: files, recipes and mixtures, with its reward transform."""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from rl_training.data import TransitionDataset, load_transition_dataset, mix_transition_datasets
from rl_training.data.datasets.transition_dataset import transform_rewards
from rl_training.envs.making import EnvFactory, spec_of
from rl_training.experiment.agent import load_agent
from rl_training.experiment.config.dataset_config import FilePart
from rl_training.experiment.config.registry import get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, DatasetRecipe, TrainConfig
from rl_training.runtime.policies import SometimesRandom
from rl_training.runtime.recipes import roll_dataset
from rl_training.types import EnvSpec


class RewardChange(NamedTuple):
    """A reward transform with its numbers resolved; it also applies to online rewards after an offline phase."""

    scale: float = 1.0
    shift: float = 0.0
    clip: tuple[float, float] | None = None

    def apply(self, rewards: Tensor) -> Tensor:
        return transform_rewards(rewards, *self)


def load_dataset(config: TrainConfig, like: EnvSpec | None = None) -> tuple[TransitionDataset, RewardChange]:
    """Returns the dataset after its reward transform, with Box actions in [-1, 1], and the transform.

    `like` has the categories and the first action of the data, where they are known.
    """
    dataset, rewards = _read(config, like), config.rewards
    normal = dataset.return_range_scale() if rewards.normalize == "return_range" else 1.0
    change = RewardChange(normal * rewards.scale, rewards.shift, rewards.clip)
    return dataset if change == RewardChange() else dataset.with_reward_transform(*change), change


def _read(config: TrainConfig, like: EnvSpec | None) -> TransitionDataset:
    if config.dataset is None:
        raise ConfigError(_missing(config.algo))
    if not isinstance(config.dataset, tuple):
        return _one_source(config, config.dataset, like)
    weights = [part.weight for part in config.dataset if part.weight is not None]
    parts = [_one_source(config, part, like) for part in config.dataset]
    dataset = mix_transition_datasets(parts, weights or None)
    dataset.dropped_terminals = sum(part.dropped_terminals for part in parts)
    dataset.notes = tuple(note for part in parts for note in part.notes)
    return dataset


def _missing(algo: str) -> str:
    needed, recipe = "trains offline and needs a dataset", "{kind: random, rows: 50000}"
    if get_algorithm_spec(algo).learner.needs_expert:
        needed, recipe = "needs an expert's dataset", "{kind: policy, policy: RUN, rows: 5000}"
    return f"{algo} {needed}; give --dataset FILE or a recipe, for example dataset: {recipe}"


def _one_source(config: TrainConfig, source: str | DatasetRecipe | FilePart, like: EnvSpec | None) -> TransitionDataset:
    whole = roll_recipe(config, source) if isinstance(source, DatasetRecipe) else _from_file(config, source, like)
    if config.dataset_episodes is None and config.dataset_stride == 1:
        return whole
    count = len(whole.episode_offsets)
    if config.dataset_episodes is not None and config.dataset_episodes > count:
        raise ConfigError(f"dataset_episodes must be at most {count}, as its source has, got {config.dataset_episodes}")
    part = whole.subsample(episodes=config.dataset_episodes, stride=config.dataset_stride)
    part.notes = whole.notes
    return part


def _from_file(config: TrainConfig, source: str | FilePart, like: EnvSpec | None) -> TransitionDataset:
    return load_transition_dataset(
        source if isinstance(source, str) else source.source,
        spec=None if (env := config.environment()) is None else spec_of(env),
        columns=config.dataset_columns, action_range=config.action_range, allow=config.allow, like=like,
        **config.table.model_dump(),
    )  # fmt: skip


def roll_recipe(config: TrainConfig, recipe: DatasetRecipe) -> TransitionDataset:
    source = config.environment() if recipe.env_id is None else EnvFactory(recipe.env_id, config.env_kwargs)
    if source is None:
        raise ConfigError("a dataset recipe needs an environment; set env_id")
    policy = like = None
    if recipe.kind == "policy":
        agent = load_agent(Path(str(recipe.policy)))
        policy, like = SometimesRandom(agent.learner, agent.spec, recipe.epsilon), agent.spec
    return roll_dataset(source, rows=recipe.rows, seed=recipe.seed, policy=policy, like=like)
