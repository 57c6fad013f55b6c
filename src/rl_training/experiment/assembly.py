"""From a config to the parts of a training run: data or environments, learner, lane, updater, callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rl_training import streams
from rl_training.algorithms import Learner, MBPOAlgorithm, Updater
from rl_training.data import FrameReplayBuffer, ReplayBuffer, RolloutBuffer, TransitionDataset
from rl_training.envs.pool import EnvPool
from rl_training.experiment.config.registry import build_learner, get_algorithm_spec
from rl_training.experiment.config.train_config import ConfigError, RewardTransform, TrainConfig
from rl_training.experiment.datasets import RewardChange, load_dataset
from rl_training.experiment.imitation import imitation_lane
from rl_training.experiment.machine import Choices
from rl_training.experiment.model_based import with_model
from rl_training.experiment.sequences import sequence_lane
from rl_training.runtime.callbacks.logging import LogMetrics, Row
from rl_training.runtime.callbacks.training import EarlyStop, Evaluate, LogWarnings, MaxUpdates, Schedules
from rl_training.runtime.engine import Callback
from rl_training.runtime.evaluation import evaluate
from rl_training.runtime.lanes import Actor, FineTuneLane, OfflineLane, ReplayLane, RolloutLane
from rl_training.runtime.lanes.action_noise import ActionNoise
from rl_training.runtime.population import PoolGroup, member_states
from rl_training.runtime.state import Lane, TrainerState
from rl_training.types import SKIP_UPDATES, EnvSpec, Policy

MOST_ROWS = 1_000_000  # of what is lived after an offline phase
PRIORITIES = ("prioritized", "priority_alpha")  # options of those learners that can weigh rows


@dataclass
class Assembly:
    """What one run is made of; `fingerprint` is its dataset's."""

    learner: Learner
    spec: EnvSpec
    state: TrainerState
    member: int | None = None  # its place in a population
    dataset: TransitionDataset | None = None
    fingerprint: str | None = None
    pool: EnvPool | None = None

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


def assemble(configs: Sequence[TrainConfig], choices: Choices, total: int) -> tuple[TrainerState, list[Assembly]]:
    """The state that trains, and each run's own parts; several configs, alike but for the seed, are one population."""
    algorithm = get_algorithm_spec(configs[0].algo)
    options = algorithm.config_type(**configs[0].algo_kwargs)
    offline = algorithm.lane == "offline"
    return (_offline if offline else _online)(configs, options, choices, total)


def _offline(
    configs: Sequence[TrainConfig], options: Any, choices: Choices, total: int
) -> tuple[TrainerState, list[Assembly]]:
    config = configs[0]
    if config.online_steps and get_algorithm_spec(config.algo).learner.uses_model:
        raise ConfigError(f"{config.algo} learns in a model of its data, and has no online_steps; mbpo acts as well")
    dataset, change = load_dataset(config)
    fingerprint = dataset.fingerprint()
    learners = [new_learner(each, dataset.spec, options, choices) for each in configs]
    if "returns_to_go" in learners[0].needs and "returns_to_go" not in dataset.columns:
        if config.dataset_stride > 1:
            raise ConfigError(f"{config.algo} needs returns-to-go, which cannot be summed over a dataset_stride's gaps")
        dataset = dataset.with_discounted_returns_to_go(options.gamma)
    prepared = [learner.prepare(dataset.columns) for learner in learners]
    dataset = dataset.with_columns(**prepared[0]).to(choices.device)
    dataset.seed(streams.derive(config.seed, "sampling"))
    pool = new_pool(config) if config.online_steps else None

    def lane(policy: Policy) -> Lane:
        if pool is None:
            return _with_model(config, OfflineLane(dataset), learners[0], dataset.spec, choices)
        actor = new_actor(config, policy, pool, options, choices)
        return _fine_tuning(config, dataset, change, actor, learners[0], total - config.total_timesteps)

    state = new_state(config, learners, lane, choices, total)
    parts = [
        Assembly(learner, dataset.spec, state, dataset=dataset, fingerprint=fingerprint, pool=pool)
        for learner in learners
    ]
    return state, _as_members(state, parts)


def _fine_tuning(
    config: TrainConfig, dataset: TransitionDataset, change: RewardChange, actor: Actor, learner: Learner, steps: int
) -> Lane:
    needed = dict.fromkeys(learner.needs, ((), torch.float32))
    rows = min(max(steps, config.num_envs), MOST_ROWS)  # of all steps, so that every episode fits
    replay = ReplayBuffer(rows, actor.pool.spec, device=actor.device, extra=needed)
    return FineTuneLane(
        dataset, actor, replay, offline_steps=config.total_timesteps, batch_size=learner.config.batch_size,
        offline_ratio=config.offline_ratio, updates_per_step=config.updates_per_step, rewards=change.apply,
        gamma=learner.config.gamma,
    )  # fmt: skip


def new_actor(config: TrainConfig, policy: Policy, pool: Any, options: Any, choices: Choices) -> Actor:
    device, noise = torch.device(choices.device), ActionNoise.build(options)
    return Actor(policy, pool, streams.generator(config.seed, "exploration", device=device), device, noise=noise)


def _online(
    configs: Sequence[TrainConfig], options: Any, choices: Choices, total: int
) -> tuple[TrainerState, list[Assembly]]:
    experts = _experts(configs[0])
    pools: list[EnvPool] = []
    try:
        pools += [new_pool(config) for config in configs]
        learners = [new_learner(config, pools[0].spec, options, choices) for config in configs]

        def lane(policy: Policy) -> Lane:
            pool = pools[0] if len(pools) == 1 else PoolGroup(pools)
            return online_lane(configs[0], learners, policy, pool, options, choices, experts)

        state = new_state(configs[0], learners, lane, choices, total)
        fingerprint = None if experts is None else experts.fingerprint()
        parts = [
            Assembly(learner, pool.spec, state, dataset=experts, fingerprint=fingerprint, pool=pool)
            for learner, pool in zip(learners, pools, strict=True)
        ]
        return state, _as_members(state, parts)
    except BaseException:
        for pool in pools:
            pool.close()
        raise


def _experts(config: TrainConfig) -> TransitionDataset | None:
    """Those that an imitator learns from; whoever else learns by acting takes none."""
    algo, needs_expert = config.algo, get_algorithm_spec(config.algo).learner.needs_expert
    if config.rewards != RewardTransform() or (config.dataset is not None and not needs_expert):
        raise ConfigError(
            f"{algo} learns by acting and takes no "
            + ("changes of a dataset's rewards" if needs_expert else "dataset, nor changes of a dataset's rewards")
        )
    if isinstance(config.dataset, tuple) and config.dataset[0].weight is not None:
        raise ConfigError(f"{algo} draws every row of its experts as often as any other; leave out the weights")
    if config.online_steps:
        raise ConfigError(f"online_steps follow on an offline phase, and {algo} has none; use total_timesteps")
    return load_dataset(config)[0] if needs_expert else None


def _as_members(state: TrainerState, parts: list[Assembly]) -> list[Assembly]:
    if len(parts) > 1:
        for number, (part, own) in enumerate(zip(parts, member_states(state), strict=True)):
            part.member, part.state = number, own
    return parts


def new_learner(config: TrainConfig, spec: EnvSpec, options: Any, choices: Choices) -> Learner:
    with streams.fork(config.seed, "init"):
        return build_learner(config.algo, spec, options).to(choices.device)


def new_state(
    config: TrainConfig, learners: Sequence[Learner], lane: Callable[[Policy], Lane], choices: Choices, total: int
) -> TrainerState:
    updater = Updater(learners, compile=choices.compile, capture=choices.device.startswith("cuda"))
    made = lane(updater.population or learners[0])
    torch.manual_seed(streams.derive(config.seed, "updates"))  # from here on the default generator is the updates' own
    return TrainerState(updater, made, total)


def new_pool(config: TrainConfig) -> EnvPool:
    if config.env_id is None:
        raise ConfigError(f"{config.algo} learns by acting: name an environment, for example CartPole-v1")
    seed = streams.derive(config.seed, "training")
    return EnvPool(
        config.env_id, config.num_envs, seed=seed, env_kwargs=config.env_kwargs, workers=config.env_workers,
        training=True,
    )  # fmt: skip


def online_lane(
    config: TrainConfig, learners: Sequence[Learner], policy: Policy, pool: Any, options: Any, choices: Choices,
    experts: TransitionDataset | None = None,
) -> Lane:  # fmt: skip
    actor = new_actor(config, policy, pool, options, choices)
    sampling = streams.derive(config.seed, "sampling")
    if learners[0].lane == "rollout":
        rollout = RolloutBuffer(actor.device)
        rollout.seed(sampling)
        if experts is None:
            return RolloutLane(learners[0], actor, rollout, options)
        return imitation_lane(config, experts, learners[0], actor, rollout, options, compile=choices.compile)
    if learners[0].lane == "sequence":
        return sequence_lane(learners[0], actor, options, sampling)
    members = len(learners) if len(learners) > 1 else None
    stacked = getattr(options, "stacked_frames", None)
    by_frames = pool.stacks_frames if stacked is None else stacked
    replay = (FrameReplayBuffer if by_frames else ReplayBuffer)(
        options.buffer_size, pool.spec, device=actor.device, members=members, stride=pool.num_envs, gamma=options.gamma,
        n_step=options.n_step, **{name: getattr(options, name) for name in PRIORITIES if hasattr(options, name)},
    )  # fmt: skip
    replay.seed(sampling)
    return _with_model(config, ReplayLane(actor, replay, options), learners[0], pool.spec, choices)


def _with_model(
    config: TrainConfig, lane: OfflineLane | ReplayLane, learner: Learner, spec: EnvSpec, choices: Choices
) -> Lane:
    return (
        with_model(config, lane, learner, spec, torch.device(choices.device))
        if isinstance(learner, MBPOAlgorithm)
        else lane
    )


def new_callbacks(
    config: TrainConfig,
    parts: Assembly,
    choices: Choices,
    *,
    user: Sequence[Callback],
    writers: Sequence[Callable[[Row], None]],
    say: Callable[[str], None],
) -> list[Callback]:
    """In the order they are told; saving comes after all of them."""
    total = config.duration
    callbacks: list[Callback] = [LogMetrics(interval(config.log_interval, total, 100), *writers, member=parts.member)]
    callbacks.append(LogWarnings(parts.learner.warnings, say))
    callbacks += [Schedules(moving, defaults) for moving, defaults in [_schedules(config, parts.learner)] if moving]
    evaluation = _evaluation(config, parts, choices, writers)
    callbacks += [] if evaluation is None else [evaluation]
    if config.early_stopping is not None:
        if evaluation is None:
            raise ConfigError("early_stopping counts evaluations, and without an env_id there are none")
        callbacks.append(EarlyStop(config.early_stopping.patience, config.early_stopping.min_delta))
    budget = _budget(config, parts)
    return callbacks + ([] if budget is None else [MaxUpdates(budget)]) + list(user)


def _evaluation(
    config: TrainConfig, parts: Assembly, choices: Choices, writers: Sequence[Callable[[Row], None]]
) -> Evaluate | None:
    every = interval(config.eval_interval, config.duration, 10)
    if config.env_id is None or not every:
        return None

    def score() -> dict[str, Any]:
        return evaluate(
            parts.learner, config.env_id, episodes=config.eval_episodes, seed=streams.derive(config.seed, "selection"),
            env_kwargs=config.env_kwargs, deterministic=not config.eval_stochastic, device=choices.device,
        ).summary(config.env_id)  # fmt: skip

    def write(row: Row) -> None:
        for each in writers:
            each(row)

    return Evaluate(every, score, write)


def interval(asked: int | None, total: int, parts: int) -> int:
    """Steps between events: as asked (0 is never), or so many times in the whole run."""
    return max(1, total // parts) if asked is None else asked


def _schedules(config: TrainConfig, learner: Learner) -> tuple[dict[str, Any], dict[str, float]]:
    moving = {**learner.schedules(), **config.schedules}
    numbers = {group.rate: group.learning_rate for group in learner.parameter_groups()}
    numbers |= {"learning_rate": learner.config.learning_rate}
    numbers |= {name: float(value) for name, value in learner.named_buffers(recurse=False) if name != SKIP_UPDATES}
    unknown = sorted(set(moving) - set(numbers))
    if unknown:
        name = unknown[0]
        unset = name == "actor_learning_rate" and hasattr(learner.config, name)
        raise ConfigError(
            f"schedules: {config.algo} cannot schedule {name!r}; it can {', '.join(sorted(numbers))}"
            + (f", and {name} once algo_kwargs.{name} has a value" if unset else "")
        )
    # learning_rate first: it moves every group, and a group with a schedule of its own is then set by that
    return dict(sorted(moving.items(), key=lambda item: item[0] != "learning_rate")), numbers


def _budget(config: TrainConfig, parts: Assembly) -> int | None:
    budgets = [] if config.max_updates is None else [config.max_updates]
    if config.max_epochs is not None:
        if parts.dataset is None or parts.learner.needs_expert:
            raise ConfigError(
                f"max_epochs counts passes over a dataset, and {config.algo} updates on none; use max_updates"
            )
        budgets.append(math.ceil(config.max_epochs * len(parts.dataset) / parts.learner.config.batch_size))
    return min(budgets, default=None)
